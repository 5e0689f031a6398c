"""Tests of cleanerd.apply."""
