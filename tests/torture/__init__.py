"""Attacks that try to break cleanerd: `make torture`."""
