"""Tests of cleanerd.resolution."""
