"""The command line: one module per command; only ``output.py`` prints."""

import os

# NumPy's linear algebra starts a thread per core when it is loaded, and these spin for a while: a tenth of the CPU time
# of a small cleaning, which multiplies no matrices. NumPy reads this at its import, which comes later.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
