"""Logs after a power cut: Kafka's recovery with and without a cleaning before it (U-32)."""
