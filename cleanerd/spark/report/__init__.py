"""A profile as a report: one page with pictures, and its figures as JSON and Parquet.

``topics.py`` adds up partitions, ``hot_keys.py`` reads the keys with the most records, ``pictures.py`` draws,
``page.py`` makes the page, ``files.py`` writes all of it.
"""
