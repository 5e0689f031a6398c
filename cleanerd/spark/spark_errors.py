"""Spark's exceptions when a job fails, and the reason in one line."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Final

from cleanerd import __version__
from cleanerd.errors import MachineError

_JAVAS_BY_CONNECT: Final = frozenset({"SparkConnectGrpcException", "SparkException", "UnknownException"})
"""A Connect client's classes for unknown errors; by name, because its libraries may be missing."""

_OF_A_CHANNEL: Final = re.compile(r'^\s*details = "(.+)"$', re.MULTILINE)
"""The status of a call to a Connect server, among other lines."""

_IS_OTHER_RELEASE: Final = re.compile(r"a plan of cleanerd .* this is|No module named 'cleanerd")
_OTHER_RELEASE: Final = (
    f"install cleanerd {__version__} on the executors too, or set PYSPARK_PYTHON; see docs/spark-deploy.md"
)


@contextlib.contextmanager
def require_java() -> Iterator[None]:
    """A block that calls Java and reads no file, so an error of a socket does not concern a log.

    Raises:
        MachineError: Java has ended.
    """
    from py4j.protocol import Py4JNetworkError  # noqa: PLC0415

    try:
        yield
    except (Py4JNetworkError, OSError) as error:
        raise MachineError(
            f"Spark's Java does not answer any more: {reason_of(error)}", hint="-v shows more"
        ) from error


def spark_errors() -> tuple[type[Exception], ...]:
    """The exceptions of a failed job: Spark's own errors, and Java's for a killed worker or a lost executor.

    Imported with a session only: a process without one needs no pyspark.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    return PySparkException, Py4JJavaError


def is_javas(error: BaseException) -> bool:
    """Whether it is an error of Java or of a channel, whose long text does not help a user."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415

    of_connect = type(error).__module__.endswith("errors.exceptions.connect")
    return isinstance(error, Py4JJavaError) or (of_connect and type(error).__name__ in _JAVAS_BY_CONNECT)


def reason_of(error: BaseException) -> str:
    """The last line of a Python traceback in the error's text, or its first line that is not about the call."""
    text = str(error)
    channel = _OF_A_CHANNEL.search(text)
    if channel:
        return channel[1][:400]
    lines = [line.strip() for line in (text.partition("\n: ")[2] or text).splitlines() if line.strip()]
    errors = [line for line in lines if "Error: " in line and not line.startswith(("at ", "File "))]
    return (errors or lines or ["no reason"])[-1 if errors else 0][:400]


def hint_of(reason: str) -> str:
    return _OTHER_RELEASE if is_other_release(reason) else "-v shows more"


def is_other_release(reason: str) -> bool:
    """Whether the executors have another cleanerd than the driver, or none."""
    return _IS_OTHER_RELEASE.search(reason) is not None
