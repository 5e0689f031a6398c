"""Tests of cleanerd.settings."""
