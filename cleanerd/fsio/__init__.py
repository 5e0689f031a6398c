"""Files whose owner may be hostile: opened, read, replaced, locked (U-33)."""
