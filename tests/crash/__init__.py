"""Crash states of the swap, judged by Kafka's own loader."""
