"""Settings and topic configuration: keys, defaults, sources (TOML, environment, ``--set``), and origins."""
