"""The agent in real brokers, queried over its socket without the package's own client."""
