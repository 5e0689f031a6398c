"""Tests of the compiled kernel, mostly against its pure-Python twin."""
