"""Reads and changes topic configurations of a running cluster, by Kafka's admin protocol."""
