"""Translates the kernel's errors to cleanerd's, so that they end the work on one partition only, with a reason."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from cleanerd import _kernel
from cleanerd.errors import (
    DELETE_RECORDS,
    BatchTooLargeError,
    CleanerdError,
    CorruptionError,
    KernelError,
    MachineError,
    delete_segment_hint,
)

KERNEL_ERRORS: Final = (_kernel.CorruptLogError, _kernel.InvalidCallError, _kernel.KernelBugError, MemoryError)
_REPORT: Final = "please report it; the log is unchanged"
_DAMAGED: Final = (
    "copy the partition from a replica without the damage; if every replica has it, delete the records below the next "
    f"segment, whose file name is that offset, with {DELETE_RECORDS}"
)
_MORE_MEMORY: Final = "raise the memory limit of cleanerd, or lower log.cleaner.threads"


@contextlib.contextmanager
def translated_kernel_errors(where: str) -> Iterator[None]:
    """Translate the kernel's errors in the block, and a lack of memory, to errors about ``where``.

    Raises:
        CorruptionError: the bytes contradict the format.
        BatchTooLargeError: a batch would take more memory than it may (U-35).
        KernelError: arguments do not fit together, such as keep bits of another file, or the kernel panicked.
        MachineError: out of memory (U-38).
    """
    try:
        yield
    except KERNEL_ERRORS as error:
        raise kernel_error(error, where) from error


def kernel_error(error: Exception, where: str) -> CleanerdError:
    """One of :data:`KERNEL_ERRORS` as :func:`translated_kernel_errors` raises it."""
    if isinstance(error, _kernel.CorruptLogError):
        return bad_batch(error, where)
    if isinstance(error, _kernel.InvalidCallError):
        return KernelError(f"the log changed after the cleaning was computed: {error}", where=where, hint=_REPORT)
    if isinstance(error, _kernel.KernelBugError):
        return KernelError(f"internal error: {error}", where=where, hint=_REPORT)
    return MachineError("no memory is left", where=where, hint=_MORE_MEMORY)


def bad_batch(error: _kernel.CorruptLogError, where: str) -> CorruptionError | BatchTooLargeError:
    """The kernel's finding as an error of cleanerd, with its file."""
    place = [f"batch at offset {error.base_offset}"] if error.base_offset >= 0 else []
    if error.record >= 0:
        place.append(f"record {error.record}")
    reason = f"{error.reason} ({', '.join(place)})" if place else error.reason
    if isinstance(error, _kernel.BatchTooLargeError):
        return BatchTooLargeError(reason, where=where, position=error.position)
    # Offsets inside a v0 or v1 wrapper: brokers store them, so every replica has them (U-45).
    hint = delete_segment_hint("this segment") if error.reason == "offsets decrease" else _DAMAGED
    return CorruptionError(reason, where=where, position=error.position, hint=hint)
