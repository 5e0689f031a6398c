"""Tests of cleanerd.segments."""
