"""The judges: real Kafka, and its clients."""
