"""cleanerd's own settings, with Kafka's names and units: from TOML files, the environment and ``--set``."""

from cleanerd.config.load import Settings, TopicTable, load_settings, read_settings

__all__ = ["Settings", "TopicTable", "load_settings", "read_settings"]
