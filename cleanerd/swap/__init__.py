"""Swaps staged segments in: the only package that changes files of a broker."""
