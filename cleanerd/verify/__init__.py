"""Checks a log from its bytes alone. Shares no code with what decides or writes (U-28)."""
