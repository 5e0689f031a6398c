"""Tables of small logs for the comparison: each row is a history and what must happen in it."""
