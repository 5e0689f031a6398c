"""A cleaned archive of log directories: each partition is copied to an executor's disk, cleaned and uploaded elsewhere.

::

    list      the driver     copy the directory's own files, list its partitions           directory_copy.py
    clean     a task each    fetch a copy, the local engine's round on it, upload          partition.py
    finish    the driver     the directories' own files, then the manifest, last           run.py

Sources are never changed, and the output is valid only with its manifest.
"""
