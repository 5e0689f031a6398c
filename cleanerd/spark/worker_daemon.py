"""Forks the Python workers of cleanerd's own sessions (``spark.python.daemon.module``); smaller than pyspark's.

It has pyspark, numpy and the kernel loaded before it forks, from compiled files. pandas is excluded: pyarrow would load
it into each worker at its first array, and cleanerd's tasks do not use it.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

from cleanerd.spark.own_pyspark import prefer_installed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class NoPandas(MetaPathFinder):
    """Reports that pandas is not installed: pyarrow would treat ``None`` in ``sys.modules`` as a module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Finds no module.

        Raises:
            ModuleNotFoundError: it is pandas.
        """
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


def main() -> None:
    """Fork workers until Spark ends it."""
    prefer_installed()
    sys.meta_path.insert(0, NoPandas())
    # All that starts no thread. pyarrow does, and a fork takes none along.
    import pyspark.worker  # noqa: PLC0415, F401
    from pyspark.daemon import manager  # noqa: PLC0415

    import cleanerd.host.memory  # noqa: PLC0415
    import cleanerd.verify.partition_log  # noqa: PLC0415
    import cleanerd.verify.rules  # noqa: PLC0415, F401

    manager()


if __name__ == "__main__":
    main()
