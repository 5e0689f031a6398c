"""Tests of cleanerd.swap."""
