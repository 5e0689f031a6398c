"""The same log, cleaned repeatedly by Kafka's own cleaner and by cleanerd: real Kafka is the reference."""
