"""Measurements of this machine: made-up logs, kernel stages, whole cleanings, and the yardsticks beside them."""
