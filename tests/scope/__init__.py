"""Tests of cleanerd.scope."""
