"""Checks of a host, and their results. Read only; ``cli/doctor.py`` prints them."""
