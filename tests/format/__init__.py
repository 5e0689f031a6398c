"""Tests of cleanerd.format."""
