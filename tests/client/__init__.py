"""Tests of cleanerd/client."""
