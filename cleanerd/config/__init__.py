"""Settings and topic configuration: keys, defaults, sources (TOML, environment, ``--set``), and origins."""

from cleanerd.config.load import Settings, TopicTable, load_settings, read_settings

__all__ = ["Settings", "TopicTable", "load_settings", "read_settings"]
