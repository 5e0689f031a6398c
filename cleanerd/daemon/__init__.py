"""The daemon: one asyncio process that watches log directories and cleans what is worth it.

``service`` puts it together. Its rooms: ``looking`` (what there is), ``fleet`` (what is known, and who is next),
``work`` (what a worker does), ``showing`` (makes the view) and ``http`` (serves it).
"""
