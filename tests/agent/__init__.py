"""The agent in real brokers, asked over its socket; nothing of the package's own client is used."""
