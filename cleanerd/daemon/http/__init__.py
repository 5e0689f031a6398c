"""Shows the view to others over HTTP: status, metrics, health and the status page. Knows nothing but the view."""
