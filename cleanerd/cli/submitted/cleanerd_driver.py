"""The script for ``spark-submit``: cleanerd with its original command line (``spark/launch.py``).

Started manually, ``spark-submit .../cleanerd_driver.py spark COMMAND ...``, it is the driver too: it uses the arguments
unchanged, and leaves the master to ``spark-submit``.
"""

import os
import sys

from cleanerd.cli.main import main
from cleanerd.spark.launch import DRIVER_VARIABLE, STDERR_VARIABLE, unquoted_argument
from cleanerd.spark.own_pyspark import prefer_installed
from cleanerd.spark.streams import adopt_stderr

if __name__ == "__main__":
    if DRIVER_VARIABLE in os.environ:
        adopt_stderr(os.environ.get(STDERR_VARIABLE, ""))
        sys.argv[1:] = map(unquoted_argument, sys.argv[1:])
    os.environ[DRIVER_VARIABLE] = "1"
    prefer_installed()
    main()
