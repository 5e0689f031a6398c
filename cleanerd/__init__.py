"""cleanerd: an independent, strategy-aware log cleaner for Apache Kafka."""

__version__ = "0.1.0"
