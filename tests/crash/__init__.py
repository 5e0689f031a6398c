"""Crash states of the swap, loaded by Kafka's own loader."""
