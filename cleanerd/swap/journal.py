"""The progress of a swap: ``.kstage/<plan id>/journal``, lines that are only appended (S-32, S-38).

::

    begin <plan id> <base> <end> <crc>
    done <plan id> <base> <end> <crc>

The files in the partition directory show whether a group is old or new; the journal shows that its ``.deleted`` files
are ours, and which groups need no check any more. A line is used only if its CRC-32 is right, so the torn tail of a
crash is ignored; the next append starts on a line of its own. A checksum does not prevent forged lines: lines that are
not ours are ignored like the torn one (U-33).
"""

from __future__ import annotations

import os
import re
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from cleanerd.cleaner.manifest import STAGING, staging_path
from cleanerd.errors import system_error
from cleanerd.fsio.safe_open import close_quietly

if TYPE_CHECKING:
    from cleanerd.swap.files import PartitionFiles

JOURNAL: Final = "journal"

_LINE: Final = re.compile(rb"(begin|done) ([0-9a-z-]+) ([0-9]{1,19}) [0-9]{1,19}")


class Span(Protocol):
    """The subject of a line: a group that is swapped in or restored."""

    @property
    def base(self) -> int:
        """Its first base offset."""

    @property
    def end(self) -> int:
        """The base offset of the segment after it."""


@dataclass(slots=True)
class JournalEntries:
    """The journal of one plan: base offsets of groups that were begun and of groups that are done."""

    begun: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)


class Journal:
    """The journal of one plan. Every method raises CleanerdError if the file cannot be read or written."""

    def __init__(self, files: PartitionFiles, plan_id: str) -> None:
        """Reads and writes nothing yet."""
        self._files = files
        self._plan_id = plan_id
        self._directory = staging_path(plan_id)
        self._name = f"{self._directory}/{JOURNAL}"

    def begin(self, group: Span) -> None:
        """S-32: before the commit point of ``group``. On the disk when this returns, with its directories."""
        self._append(f"begin {self._plan_id} {group.base} {group.end}")
        self._files.fsync_directory(self._directory)
        self._files.fsync_directory(STAGING)

    def done(self, group: Span) -> None:
        """S-38: ``group`` is complete. On the disk when this returns."""
        self._append(f"done {self._plan_id} {group.base} {group.end}")

    def entries(self) -> JournalEntries:
        """All complete lines of this plan."""
        entries = JournalEntries()
        for line in (self._files.read(self._name) or b"").split(b"\n"):
            word, plan, base = _parse_line(line)
            if plan == self._plan_id:
                (entries.begun if word == "begin" else entries.done).add(base)
        return entries

    def _append(self, line: str) -> None:
        text = line.encode("ascii")
        self._files.append(self._name, (b"\n" if self._is_torn() else b"") + text + b" %08x\n" % zlib.crc32(text))
        self._files.fsync(self._name)

    def _is_torn(self) -> bool:
        """Whether the last line is incomplete. Reads only the end: thousands of groups have thousands of lines."""
        status = self._files.stat(self._name)
        if status is None or not status.st_size:
            return False
        descriptor = self._files.open(self._name)
        try:
            return os.pread(descriptor, 1, status.st_size - 1) != b"\n"
        except OSError as error:
            raise system_error("cannot be read", self._files.where(self._name), error) from error
        finally:
            close_quietly(descriptor)


def _parse_line(line: bytes) -> tuple[str, str, int]:
    """The content, plan and base of a line; the plan is empty if the line is not ours, or its CRC is wrong."""
    text, _, crc = line.rpartition(b" ")
    found = _LINE.fullmatch(text)
    if found is None or crc != b"%08x" % zlib.crc32(text):
        return "", "", -1
    word, plan, base = found.groups()
    return word.decode(), plan.decode(), int(base)
