"""Standard input, output and error, also if the parent process has closed them."""

from __future__ import annotations

import os
import sys


def have_streams() -> None:
    """Lead closed descriptors 0 to 2 to ``/dev/null``, and give ``sys`` its streams.

    The next file that is opened would get the number of a closed one: what a library prints there would go into it.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
