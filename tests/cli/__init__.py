"""Tests of cleanerd.cli."""
