"""When Spark gives a job up: what it raises then, and why in one line."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from cleanerd.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def java_is_there() -> Iterator[None]:
    """In the block Java is asked for something, and no file is read: what a socket says is not about a log.

    Raises:
        MachineError: Java is gone.
    """
    from py4j.protocol import Py4JNetworkError  # noqa: PLC0415

    try:
        yield
    except (Py4JNetworkError, OSError) as error:
        raise MachineError(
            f"Spark's Java does not answer any more: {reason_of(error)}", hint="-v shows more"
        ) from error


def spark_errors() -> tuple[type[Exception], ...]:
    """What a job raises: Spark's own errors; and Java's, of a worker that was killed or an executor that was lost.

    Asked for where there is a session: what this process does alone needs no pyspark.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    return PySparkException, Py4JJavaError


def is_javas(error: BaseException) -> bool:
    """Whether it is none of Spark's own errors: pages of Java that tell a user nothing."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415

    return isinstance(error, Py4JJavaError)


def reason_of(error: BaseException) -> str:
    """The last line of a Python traceback in the error's text, or its first line that is not about the call."""
    text = str(error)
    lines = [line.strip() for line in (text.partition("\n: ")[2] or text).splitlines() if line.strip()]
    errors = [line for line in lines if "Error: " in line and not line.startswith(("at ", "File "))]
    return (errors or lines or ["no reason"])[-1 if errors else 0][:400]
