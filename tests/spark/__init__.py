"""Cleaning and auditing by Spark: the tasks themselves, and their runs in Spark."""
