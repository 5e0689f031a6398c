"""Logs that lost power: what Kafka's recovery makes of them, with and without a cleaning before it (U-32)."""
