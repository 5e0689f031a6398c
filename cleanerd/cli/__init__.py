"""The command line: one verb a file; ``output`` is the only module that prints."""
