"""Running brokers with the agent in them, cleaned while clients write and read."""
