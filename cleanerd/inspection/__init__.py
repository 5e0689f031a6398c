"""Decodes any file that a broker keeps into facts and tables. Reads only; ``cli/inspect.py`` shows them."""
