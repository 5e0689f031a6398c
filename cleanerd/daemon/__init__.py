"""The daemon: one asyncio process that watches log directories, chooses partitions and cleans them.

``service`` connects the packages: ``discovery`` scans, ``registry`` keeps the state and chooses, ``work`` cleans,
``status`` builds the view, ``http`` serves it.
"""
