"""The description of a staged cleaning: ``.kstage/<plan id>/manifest.json``.

Only the manifest shows that staged files are complete: it is written after they are on the disk, one group at a time.
It lists the preconditions of the swap (S-29, U-3).
"""

from __future__ import annotations

import os
import re
import time
import uuid  # noqa: TC003 - pydantic resolves the annotation
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

from pydantic import ConfigDict, Field

from cleanerd.errors import CorruptionError, UnsupportedLogError, system_error
from cleanerd.format.adapters import Offset  # noqa: TC001 - pydantic resolves the annotation
from cleanerd.format.names import MAX_OFFSET, file_name
from cleanerd.fsio.safe_open import MAX_MANIFEST_BYTES, close_quietly, create, write_all
from cleanerd.fsio.state_files import DAMAGE, NewerFormatError
from cleanerd.segments.segment import Witness  # noqa: TC001 - as uuid
from cleanerd.state.document import Document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.policy.transaction import AbortedTransactions

T = TypeVar("T")

MANIFEST: Final = "manifest.json"
READY: Final = "ready.json"
"""The file beside the manifest of a plan that ``cleanerd stage`` made: ``swap/apply_staged.py``."""
RESTORE: Final = "restore.json"
"""The same, for a plan that restores replaced segments: ``swap/restore.py``."""
STAGING: Final = ".kstage"
PLAN_ID: Final = re.compile(r"[0-9]{8}t[0-9]{6}-[0-9a-f]{8}", re.ASCII)
"""``YYYYMMDDThhmmss-`` and 8 hex digits, in lower case."""
WORK: Final = re.compile(rf"spark-{PLAN_ID.pattern}", re.ASCII)
"""The directory where Spark's executors write for a plan, below :data:`STAGING`."""

FileKind = Literal["log", "index", "timeindex", "txnindex"]
KINDS: Final[tuple[FileKind, ...]] = ("log", "index", "timeindex", "txnindex")


_STRICT = ConfigDict(strict=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class FileFact:
    """Size and CRC-32C of one staged file."""

    bytes: Annotated[int, Field(ge=0, le=2**31 - 1)]
    crc32c: Annotated[int, Field(ge=0, le=2**32 - 1)]

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class ManifestGroup:
    """One output and the neighbouring segments it replaces.

    ``base`` is the base offset of the output and of its first source (S-07), ``end`` that of the segment after the last
    source, ``sources`` those of the sources, ascending. ``files`` always has ``log``, ``index`` and ``timeindex``
    (S-58), and ``txnindex`` when aborted transactions remain (S-56).
    """

    base: Offset
    end: Offset
    sources: tuple[Offset, ...]
    files: dict[FileKind, FileFact]

    __pydantic_config__ = _STRICT

    def kinds(self) -> tuple[FileKind, ...]:
        """The kinds of file this group has, in the order of ``KINDS``."""
        return tuple(kind for kind in KINDS if kind in self.files)


@dataclass(frozen=True, slots=True)
class AbortedWitness:
    """The aborted transactions whose markers are in ``base`` to ``end`` (exclusive), if the plan depends on them.

    ``digest`` is :meth:`AbortedTransactions.digest` of those that began below the plan's bound (U-32).
    """

    base: Offset
    end: Offset
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

    __pydantic_config__ = _STRICT


def aborted_witnesses(aborted: AbortedTransactions, groups: Sequence[ManifestGroup]) -> tuple[AbortedWitness, ...]:
    """Witnesses from offset 0 to the last: one per group, and one per range between groups.

    They can be compared even after some groups were swapped, whose outputs have fewer entries.
    """
    edges = [0, *(edge for group in groups for edge in (group.base, group.end)), MAX_OFFSET]
    return tuple(AbortedWitness(base, end, aborted.digest(base, end)) for base, end in pairwise(edges) if base < end)


StagedGroup = ManifestGroup
"""The result of staging: the group, its files written, fsynced and named ``<base>.<kind>`` in the plan's directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The finished groups of a plan, ascending, and the evidence for them.

    ``witnesses`` are those of every segment that the decision depends on, from log start to ``bound`` (U-3), ascending.
    ``aborted`` covers all offsets (U-32); it is empty where no other process can change the log. ``topic_id`` and
    ``directory_id`` are None where the log directory has none (written by an old broker).
    """

    plan: str
    topic: str
    topic_id: uuid.UUID | None
    partition: Offset
    directory_id: uuid.UUID | None
    log_start_offset: Offset
    bound: Offset
    strategy_fingerprint: str
    created_ms: Offset
    max_age_ms: Offset
    witnesses: tuple[Witness, ...]
    groups: tuple[ManifestGroup, ...]
    aborted: tuple[AbortedWitness, ...] = ()

    __pydantic_config__ = _STRICT

    @classmethod
    def of(
        cls, plan: CleaningPlan, groups: tuple[ManifestGroup, ...], witnesses: tuple[Witness, ...], max_age_ms: int
    ) -> Manifest:
        """The current staged state of ``plan``, and the evidence that it depends on."""
        return cls(
            plan=plan.plan_id,
            topic=plan.name.topic,
            topic_id=plan.topic_id,
            partition=plan.name.partition,
            directory_id=plan.directory_id,
            log_start_offset=plan.log_start_offset,
            bound=plan.first_uncleanable_offset,
            strategy_fingerprint=plan.fingerprint,
            created_ms=time.time_ns() // 1_000_000,
            max_age_ms=max_age_ms,
            witnesses=witnesses,
            groups=groups,
        )

    def to_json(self) -> bytes:
        """The file's bytes: indented JSON, UTF-8."""
        return _DOCUMENT.to_bytes(self) + b"\n"

    @classmethod
    def from_json(cls, data: bytes, where: str, max_bytes: int = MAX_MANIFEST_BYTES) -> Manifest:
        """The manifest in ``data``, checked so that its numbers can be used in file names.

        Raises:
            UnsupportedLogError: a newer cleanerd wrote it.
            CorruptionError: anything else that is not a manifest.
        """
        if len(data) > max_bytes:
            raise CorruptionError(f"{len(data)} bytes are more than a manifest has", where=where)
        return read_document(data, where, _DOCUMENT)


def read_document(data: bytes, where: str, document: Document[T]) -> T:
    """A file of the staging directory.

    Raises:
        UnsupportedLogError: a newer cleanerd wrote it.
        CorruptionError: anything else that is not such a document.
    """
    try:
        return document.parse(data)
    except NewerFormatError as error:
        hint = "a newer cleanerd staged this: use that release, or delete the staging directory"
        raise UnsupportedLogError(str(error), where=where, hint=hint) from None
    except DAMAGE as error:
        raise CorruptionError(str(error), where=where) from None


def _check(manifest: Manifest) -> None:
    """Check that the parts fit together; raises ValueError."""
    if PLAN_ID.fullmatch(manifest.plan) is None:
        raise ValueError(f"{manifest.plan[:60]!r} is not a plan id")
    bases = [witness.base for witness in manifest.witnesses]
    if any(left >= right for left, right in pairwise(bases)):
        raise ValueError("the witnesses do not ascend")
    known = set(bases)
    previous_end = 0
    for group in manifest.groups:
        edges = (*group.sources, group.end)
        if not group.sources or group.sources[0] != group.base or group.base < previous_end:
            raise ValueError(f"group {group.base} does not begin with its first source")
        if any(left >= right for left, right in pairwise(edges)) or group.end > manifest.bound:
            raise ValueError(f"the sources of group {group.base} do not ascend to its end")
        if not known.issuperset(group.sources):
            raise ValueError(f"a source of group {group.base} has no witness")
        if not {"log", "index", "timeindex"} <= group.files.keys():
            raise ValueError(f"group {group.base} lacks a log, index or timeindex")
        previous_end = group.end


_DOCUMENT: Final = Document(MANIFEST, Manifest, check=_check, only_known=True)


def staging_path(plan_id: str) -> str:
    """The plan's directory, relative to the partition's.

    Raises:
        ValueError: no plan id.
    """
    if PLAN_ID.fullmatch(plan_id) is None:
        raise ValueError(f"{plan_id[:60]!r} is not a plan id")
    return f"{STAGING}/{plan_id}"


def staged_name(plan_id: str, base: int, kind: FileKind) -> str:
    """A staged file, relative to the partition directory."""
    return f"{staging_path(plan_id)}/{file_name(base, '.' + kind)}"


def write_manifest(
    directory: int,
    manifest: Manifest,
    *,
    where: str = MANIFEST,
    lasting: bool = True,
    max_bytes: int = MAX_MANIFEST_BYTES,
) -> None:
    """Replace the manifest in the staging directory ``directory`` (a descriptor) atomically.

    ``lasting``: it survives a crash of the machine. Otherwise nothing is flushed: an incomplete file is ignored.

    Raises: UnsupportedLogError: it would exceed the limit for reading it.
        CleanerdError: it cannot be written.
    """
    data = manifest.to_json()
    if len(data) > max_bytes:
        message = f"{len(manifest.witnesses)} segments are more than a plan can name"
        raise UnsupportedLogError(
            message, where=where, hint="let the broker's cleaner merge some, or raise segment.bytes"
        )
    temporary = f"{MANIFEST}.tmp"
    try:
        descriptor = create(temporary, dir_fd=directory, mode=0o644)
        try:
            write_all(descriptor, data)
            if lasting:
                os.fsync(descriptor)
        finally:
            close_quietly(descriptor)
        os.rename(temporary, MANIFEST, src_dir_fd=directory, dst_dir_fd=directory)
        if lasting:
            os.fsync(directory)
    except OSError as error:
        raise system_error("cannot be written", where, error) from error
