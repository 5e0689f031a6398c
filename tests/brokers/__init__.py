"""Real brokers on what cleanerd left: they start, clients read what they should, open producers go on."""
