"""A broker and its log directories, asked only: who holds the lock or works there, what does its agent say.

Nothing here changes a file that a broker may read; the agent is asked to swap by ``apply/``.
"""
