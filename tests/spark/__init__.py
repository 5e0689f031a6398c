"""Spark jobs, on one session of two threads."""
