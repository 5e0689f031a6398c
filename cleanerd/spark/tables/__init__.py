"""The latest state of topics as a Delta or Iceberg table: written once, then updated from new records.

``target.py`` names the table, ``opened.py`` has its operations; ``delta.py`` and ``iceberg.py`` commit files there,
``remembered.py`` is the state in a commit. ``latest.py``, ``filter_superseded.py`` and ``finish.py`` are the work of
tasks; ``merge.py`` combines it, and ``refusals.py`` says when it cannot.
"""
