"""Tests of the compiled kernel, mostly compared with its pure-Python reference."""
