"""Serves the view over HTTP: status, metrics, health and the status page. Uses nothing but the view."""
