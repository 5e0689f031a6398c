"""Errors of the kernel as errors of ours, so that none ends a worker: one partition has failed, with a reason."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from cleanerd import _kernel
from cleanerd.errors import REPLICAS_HAVE_IT, BatchTooLargeError, CorruptionError, KernelError, MachineError

if TYPE_CHECKING:
    from collections.abc import Iterator

_REPORT: Final = "please report it; the log is unchanged"
_DAMAGED: Final = (
    "copy the partition from a replica that reads it; where each has these bytes, delete the records up to here with "
    "kafka-delete-records.sh"
)
_MORE_MEMORY: Final = "raise the memory limit of cleanerd, or lower log.cleaner.threads"


@contextlib.contextmanager
def translated_kernel_errors(where: str) -> Iterator[None]:
    """Translate the kernel's errors in the block, and a lack of memory, to errors about ``where``.

    Raises:
        CorruptionError: the bytes contradict the format.
        BatchTooLargeError: a batch would take more memory than it may (U-35).
        KernelError: arguments do not fit together, as keep bits of another file; or a panic was caught.
        MachineError: no memory is left (U-38).
    """
    try:
        yield
    except _kernel.CorruptLogError as error:
        raise bad_batch(error, where) from error
    except _kernel.InvalidCallError as error:
        raise KernelError(f"the log does not match what was decided: {error}", where=where, hint=_REPORT) from error
    except _kernel.KernelBugError as error:
        raise KernelError(f"internal error: {error}", where=where, hint=_REPORT) from error
    except MemoryError as error:
        raise MachineError("no memory is left", where=where, hint=_MORE_MEMORY) from error


def bad_batch(error: _kernel.CorruptLogError, where: str) -> CorruptionError | BatchTooLargeError:
    """The kernel's finding as an error of ours, with the file it is about."""
    place = [f"batch at offset {error.base_offset}"] if error.base_offset >= 0 else []
    if error.record >= 0:
        place.append(f"record {error.record}")
    reason = f"{error.reason} ({', '.join(place)})" if place else error.reason
    if isinstance(error, _kernel.BatchTooLargeError):
        return BatchTooLargeError(reason, where=where, position=error.position)
    # Offsets inside of a v0 or v1 wrapper: a broker stores them, and so has every replica (U-45).
    hint = REPLICAS_HAVE_IT if error.reason == "offsets go back" else _DAMAGED
    return CorruptionError(reason, where=where, position=error.position, hint=hint)
