"""A broker on this host, queried only: who holds its lock, what runs there, what its agent reports.

Nothing here changes a file of a broker; ``swap/`` asks the agent to swap.
"""
