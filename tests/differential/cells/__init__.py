"""Tables of small logs for the duel: each row is a history and what has to happen in it."""
