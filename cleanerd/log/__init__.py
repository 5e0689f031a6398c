"""A partition as found on disk: its files, its bounds, its configuration."""
