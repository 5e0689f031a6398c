"""The command line: one module per command; only ``output.py`` prints."""

import os

# NumPy's linear algebra starts a thread a core when it is loaded, and these spin for a while: a tenth of the CPU time
# of a small cleaning, and nothing here multiplies matrices. It reads this when NumPy is imported, which comes later.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
