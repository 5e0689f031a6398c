"""Real brokers on cleaned logs: they start, clients read the right records, open producers continue."""
