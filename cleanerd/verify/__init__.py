"""Is this log right? Says so from the bytes alone: no code of what decides or writes is used here (U-28)."""
