"""Tests of cleanerd.verify."""
