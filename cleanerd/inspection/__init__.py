"""Decodes each file of a broker into facts and tables. Read only; ``cli/inspect.py`` prints them."""
