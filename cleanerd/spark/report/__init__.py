"""A profile as a report: one page with charts, and its figures as JSON and Parquet.

``topics.py`` sums up partitions, ``pictures.py`` draws,
``page.py`` makes the page, ``files.py`` writes the files.
"""
