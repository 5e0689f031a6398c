"""What breaks cleanerd on purpose: `make torture`."""
