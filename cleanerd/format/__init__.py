"""Kafka's bytes <-> values. Pure: no file, no clock."""
