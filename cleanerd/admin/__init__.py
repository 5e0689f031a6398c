"""What cleanerd asks of a running cluster, and sets there, through Kafka's admin protocol."""
