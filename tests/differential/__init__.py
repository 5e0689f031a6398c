"""The same log, cleaned by Kafka's own cleaner and by ours, round after round: real Kafka is right."""
