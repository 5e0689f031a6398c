"""Uses the installed pyspark instead of Spark's zip file, whose modules are compiled again each time.

``spark-submit`` puts ``pyspark.zip`` first on the module path of the driver and of the workers. If it belongs to the
installed package, the package is the same and its compiled files exist.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from typing import Final

_ZIPS: Final = ("pyspark.zip", "py4j-")


def prefer_installed() -> None:
    """Remove Spark's zips from the module path if they belong to the installed package."""
    zips = [path for path in sys.path if os.path.basename(path).startswith(_ZIPS) and path.endswith(".zip")]
    rest = [path for path in sys.path if path not in zips]
    found = PathFinder.find_spec("pyspark", rest)
    if found is None or found.origin is None or PathFinder.find_spec("py4j", rest) is None:
        return
    home = os.path.realpath(os.path.dirname(found.origin))
    if all(os.path.realpath(path).startswith(home + os.sep) for path in zips):
        sys.path[:] = rest
