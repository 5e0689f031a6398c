"""Kafka's bytes to values and back. Pure: no file, no clock."""
