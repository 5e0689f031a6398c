"""Tests of ``cleanerd/admin``."""
