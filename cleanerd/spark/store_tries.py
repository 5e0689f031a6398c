"""Handles a store's failures: which are retried, and how they are reported without secrets."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from cleanerd.errors import CleanerdError, ConfigError, MachineError
from cleanerd.segments.same_file import changed
from cleanerd.spark.retries import RetryPolicy
from cleanerd.spark.store_clients import HDFS_NEEDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.segments.remote import RemotePath

T = TypeVar("T")

TRIES: Final = 8

ERRORS: Final = (OSError, NotImplementedError, ValueError, pa.ArrowException)
"""The exceptions of pyarrow when a store or its library fails."""

_HADOOP: Final = "Hadoop's own message is on standard error, a task's on its executor's"

_ABSENT: Final = re.compile("No such file or directory")
"""The text of Google's library for a missing object, without an error number."""

_OBJECT_GONE: Final = re.compile(r"NO_SUCH_KEY|\[BlobNotFound\]|RESOURCE_NOT_FOUND during GetObject")
"""Errors for a deleted object; the last is only a status.

pyarrow writes S3's answer to the memory for the object's bytes, so the library may find older bytes there instead of an
error.
"""

_TOO_SHORT: Final = re.compile(r"INVALID_RANGE|\[InvalidRange\]|Read out of bounds|status code: 416|HTTP status 416")
"""Whole words, because the number alone may be part of a position or of a request's name."""

_GONE: Final = re.compile(
    r"NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist|ContainerNotFound|Bucket  ?not found", re.I
)
_DENIED: Final = re.compile(
    r"ACCESS_DENIED|AccessDenied|INVALID_ACCESS_KEY|INVALID_CLIENT_TOKEN|SIGNATURE|UNRECOGNIZED_CLIENT|"
    r"HTTP status 40[13]|response code: 40[13]|EXPIRED|credential|access token|Permission denied|"
    r"authenticat|authoriz|Forbidden",
    re.I,
)  # fmt: skip


def tried(path: RemotePath, what: str, call: Callable[[], T], *, whole: int | None = None) -> T:
    """The store's answer, with a few retries. ``whole``: the expected number of bytes.

    Raises:
        SegmentChangedError: the object was deleted, or is shorter.
        ConfigError: the bucket or directory does not exist, or access is denied.
        MachineError: all tries failed.
    """
    policy = RetryPolicy.from_environment(tries=TRIES)
    for number in range(policy.tries):
        try:
            answer = call()
        except ERRORS as error:
            if is_absence(error):
                raise _absent(path, what, error) from None
            raise_if_final(path, error)
            if number == policy.tries - 1:
                hint = _HADOOP if path.parts[0] in ("hdfs:", "viewfs:") else None
                message = f"{what}, tried {policy.tries} times: {brief(error)}"
                raise MachineError(message, where=str(path), hint=hint) from None
        else:
            if whole is None or len(answer) == whole:  # type: ignore[arg-type]
                return answer
            if number == policy.tries - 1:
                raise changed(f"it became shorter: {whole} bytes were requested, {len(answer)} came", str(path))  # type: ignore[arg-type]
        time.sleep(policy.pause_seconds(number))
    raise AssertionError


def is_absence(error: Exception) -> bool:
    """Whether it means that the name does not exist."""
    return isinstance(error, FileNotFoundError) or _ABSENT.match(str(error)) is not None


def _absent(path: RemotePath, what: str, error: Exception) -> CleanerdError:
    if _GONE.search(re.sub(r"'[^']*'", "", str(error))):
        return no_bucket(path)
    if what == "cannot be listed":
        return ConfigError("no such directory", where=str(path))
    return changed("it is gone", str(path))


def raise_if_final(path: RemotePath, error: Exception) -> None:
    """Raise errors that a retry would not fix.

    Raises:
        SegmentChangedError: the object was deleted, or is shorter.
        ConfigError: the bucket does not exist, access is denied, or a library lacks something.
    """
    text = re.sub(r"'[^']*'", "", str(error))  # a topic may have the name of an error
    if _GONE.search(text):
        raise no_bucket(path) from None
    if isinstance(error, PermissionError) or _DENIED.search(text):
        raise ConfigError(
            "the store refuses access: credentials are missing, wrong, or not allowed to read this",
            where=str(path),
            hint="the store's own library searches them in the environment or its files, on every executor",
        ) from None
    if _OBJECT_GONE.search(text):
        raise changed("it is gone", str(path)) from None
    if _TOO_SHORT.search(text):
        raise changed("it became shorter while it was read", str(path)) from None
    if re.search("libhdfs|libjvm|HADOOP_HOME|HDFS connection failed", text):
        raise ConfigError(brief(error), where=str(path), hint=HDFS_NEEDS) from None


def no_bucket(path: RemotePath) -> CleanerdError:
    """The error for a path in a missing bucket."""
    return ConfigError(f"there is no bucket or container {path.parts[1].partition('@')[0]}", where=str(path))


def brief(error: Exception) -> str:
    """One line of the error, without signatures (after a question mark) and logins (before an address)."""
    return re.sub(r"\?\S*|(?<=//)[^/@\s]*@", "", str(error).split("\n", maxsplit=1)[0])[:300]
