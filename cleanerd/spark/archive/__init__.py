"""A cleaned archive of log directories: each partition is copied to an executor's disk, cleaned and uploaded elsewhere.

::

    look      the driver     what says what a log directory is, and lists the partitions   look.py
    clean     a task each    fetch a copy, the local engine's round on it, upload          partition.py
    finish    the driver     the directories' own files, then the manifest, last           run.py, manifest.py

Sources are never changed, and the output is valid only with its manifest.
"""
