"""Tests of cleanerd.config."""
