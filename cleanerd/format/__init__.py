"""Converts between Kafka's bytes and values. Pure: no files, no clock."""
