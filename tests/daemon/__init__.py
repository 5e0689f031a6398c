"""Tests of cleanerd.daemon."""
