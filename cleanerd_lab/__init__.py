"""What demonstrates cleanerd and what measures it: real brokers with real traffic, made-up logs, yardsticks.

The wheel ships it for ``cleanerd demo`` and ``cleanerd bench``; nothing else that operators run imports it.
"""
