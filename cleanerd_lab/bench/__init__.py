"""Measurements on this machine: generated logs, kernel stages, whole cleanings, and yardsticks to compare with."""
