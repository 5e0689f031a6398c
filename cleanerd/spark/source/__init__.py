"""The data source ``kafka-segments``: the files of a broker as a DataFrame, without a broker.

``data_source.py`` is called by Spark; ``options.py`` parses options; ``plan.py`` finds the logs and cuts them into
splits (driver); ``read.py`` and ``latest.py`` read a split (executors); ``rows.py`` converts to Arrow.
"""
