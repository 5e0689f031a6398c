"""Tests of cleanerd/cleaner."""
