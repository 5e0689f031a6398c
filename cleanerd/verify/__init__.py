"""Checks a log from its bytes alone. Shares no code with the modules that decide or write (U-28)."""
