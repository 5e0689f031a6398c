"""The judges: real Kafka, and what asks it."""
