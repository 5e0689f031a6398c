"""A broker on this host, queried only: the holder of its lock, its process, its agent's reports.

Nothing here changes a broker's files; ``swap/`` requests swaps from the agent.
"""
