"""Cleaning by Spark: the tasks themselves, and what Spark makes of them."""
