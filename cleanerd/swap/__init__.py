"""Swaps staged segments in: the only package that changes a broker's files."""
