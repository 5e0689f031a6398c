"""Decides which records are retained and which partitions are cleaned.

Pure functions on columns; the time is ``now_ms``.
"""
