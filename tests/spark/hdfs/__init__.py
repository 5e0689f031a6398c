"""HDFS for tests."""
