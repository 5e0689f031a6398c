"""Tests of cleanerd/policy."""
