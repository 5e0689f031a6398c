"""A broker on this host, read only: the owner of its lock, its process, its agent's reports.

This package does not change a broker's files; ``swap/`` requests swaps from the agent.
"""
