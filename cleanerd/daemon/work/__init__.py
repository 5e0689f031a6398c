"""A worker's operations on one partition: clean, stage, offload to Spark; its rate limits, and how to stop it."""
