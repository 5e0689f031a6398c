"""Tests of cleanerd.log."""
