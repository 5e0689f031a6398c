"""What a worker does with one partition: clean it, stage it, hand it over to Spark; how fast, and how to stop it."""
