"""A YARN of one node to test with."""
