"""The latest state of topics as a Delta or Iceberg table: written once, then kept up to date by what is new in the log.

``target.py`` says which table, ``opened.py`` what can be done with it; ``delta.py`` and ``iceberg.py`` commit files
there, ``remembered.py`` is what a commit carries besides. ``latest.py``, ``sift.py`` and ``finish.py`` are the work of
tasks; ``merge.py`` puts it together, and ``refusals.py`` says when it cannot.
"""
