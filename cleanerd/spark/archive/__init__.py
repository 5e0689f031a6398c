"""An archive of log directories, cleaned beside: a copy of each partition on an executor's disk, uploaded elsewhere.

::

    look      the driver     what says what a log directory is, and lists the partitions   look.py
    clean     a task each    fetch a copy, the local engine's round on it, upload          partition.py
    finish    the driver     the directories' own files, then the manifest, last           run.py, manifest.py

Nothing of a source is ever changed, and nothing counts of what was written until its manifest is there.
"""
