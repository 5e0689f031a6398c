"""The daemon: one asyncio process that watches log directories, chooses partitions and cleans them.

``service`` connects the packages: ``discovery`` scans, ``registry`` keeps what is known and chooses, ``work`` cleans,
``status`` builds the view, ``http`` serves it.
"""
