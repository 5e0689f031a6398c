"""Several log directories, one after the other: one that cannot be used does not stop the others."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from cleanerd.cli.scope import require_found
from cleanerd.errors import CleanerdError
from cleanerd.log.log_dir import read_log_dir

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cleanerd.cli.output import Output
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.log_dir import LogDir


@contextlib.contextmanager
def collected(failures: list[CleanerdError], output: Output) -> Iterator[None]:
    """An error in the block is told and remembered; the next directory gets its turn."""
    try:
        yield
    except CleanerdError as error:
        output.warning(str(error))
        failures.append(error)


def read_each(
    output: Output, paths: Sequence[Path], wanted: Sequence[TopicPartition]
) -> tuple[list[LogDir], list[CleanerdError]]:
    """Those that can be read, and why the others cannot, which is told too.

    Raises:
        ConfigError: one of ``wanted`` is in none of them, and all could be read.
    """
    readable: list[LogDir] = []
    failures: list[CleanerdError] = []
    for path in paths:
        with collected(failures, output):
            readable.append(read_log_dir(path))
    if not failures:
        require_found(wanted, readable)
    return readable, failures
