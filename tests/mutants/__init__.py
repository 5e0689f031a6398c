"""Planted wrong rules, and the tests that must notice each of them."""
