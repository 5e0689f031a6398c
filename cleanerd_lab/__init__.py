"""Demonstrations and measurements of cleanerd: real brokers with real traffic, generated logs, yardsticks.

The wheel contains it for ``cleanerd demo`` and ``cleanerd bench``; nothing else that operators run imports it.
"""
