"""What ``spark-submit`` runs: cleanerd with the command line that it was started with (``spark/launch.py``)."""

import contextlib
import os
import sys

from cleanerd.cli.main import main
from cleanerd.spark.launch import STDERR_MARK, unquoted_argument


def _own_stderr() -> None:
    """Notes and progress go where cleanerd's own would: ``spark-submit`` joins both streams into one."""
    # A socket cannot be opened again; then they stay together.
    with contextlib.suppress(OSError, KeyError):
        stream = os.open(os.environ[STDERR_MARK], os.O_WRONLY | os.O_APPEND)
        os.dup2(stream, 2)
        os.close(stream)


if __name__ == "__main__":
    _own_stderr()
    sys.argv[1:] = map(unquoted_argument, sys.argv[1:])
    main()
