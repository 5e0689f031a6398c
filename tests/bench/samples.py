"""Samples of ``perf``, and the phase of a cleaning of every."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HEAD: Final = re.compile(r"^\s*(?P<seconds>\d+\.\d+):\s*$")
_FRAME: Final = re.compile(r"^\s*[0-9a-f]+ (?P<function>.+?) \((?P<binary>[^()]*|\[[^\]]*\])\)\s*$")

_BY_SYSTEM_CALL: Final = (
    ("read back", re.compile(r"dio|direct_IO|__iomap")),
    ("read", re.compile(r"sys_(pread|read)|vfs_(iter_)?read|filemap_|do_preadv")),
    ("flush", re.compile(r"sys_(fsync|fdatasync|sync)|vfs_fsync")),
    ("write", re.compile(r"sys_(pwrite|write|copy_file)|vfs_(iter_)?write")),
    ("fresh pages", re.compile(r"page_fault|sys_(mmap|munmap|madvise|brk)")),
)
"""By any frame of the chain, the first that matches; reading back uses direct I/O, and so does writing."""

# ``pulp`` hides the calls that it makes: two words per key are returned by reference (the hash), the map's counts are
# not.
_BY_FUNCTION: Final = (
    ("map", re.compile(r"offset_map|put_max|OffsetMap|vectorize::imp$")),
    ("CRC of the file", re.compile(r"file_crc")),
    ("CRC", re.compile(r"crc")),
    ("key hash", re.compile(r"key_hash|vectorize|SipHash")),
    ("headers and batch table", re.compile(r"header|batch_table|scan_headers")),
    ("rewrite", re.compile(r"survivors|rewrite|Written|write_var")),
    ("codecs", re.compile(r"zstd|ZSTD|HUF_|FSE_|lz4|snap|zlib|deflate|inflate")),
    ("bits", re.compile(r"bits|popcount|fill_by_batch")),
    ("record walk", re.compile(r"with_workbench|decode|walk|record")),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment: seconds of the monotonic clock, the innermost function and its file, the chain above it."""

    seconds: float
    function: str
    binary: str
    chain: tuple[str, ...]


def phase_of(sample: Sample) -> str:
    """The program's phase. Time in the system counts for the call that caused it."""
    if sample.binary.startswith("[") or "vmlinux" in sample.binary:
        chain = (sample.function, *sample.chain)
        written = any(re.search(r"(sys|vfs)_write", frame) for frame in chain)
        for phase, pattern in _BY_SYSTEM_CALL:
            if any(pattern.search(frame) for frame in chain):
                return "write" if phase == "read back" and written else phase
        return "system, the rest"
    if "_kernel" in sample.binary:
        return next((phase for phase, pattern in _BY_FUNCTION if pattern.search(sample.function)), "kernel, the rest")
    if re.search(r"numpy|_umath\.", sample.binary):
        return "NumPy"
    return "memory, libc" if re.search(r"libc[.-]|ld-", sample.binary) else "Python"


def read_samples(perf: str, data: Path) -> Iterator[Sample]:
    """The samples of a recording.

    Raises:
        subprocess.CalledProcessError: ``perf`` cannot read it.
    """
    command = [perf, "script", "-i", str(data), "-F", "time,ip,sym,dso"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return parse(done.stdout)


def parse(text: str) -> Iterator[Sample]:
    """The output of ``perf script``: a line with the time, a line for each frame, an empty line."""
    for block in text.split("\n\n"):
        lines = block.strip("\n").split("\n")
        head = _HEAD.match(lines[0])
        frames = [found for line in lines[1:] if (found := _FRAME.match(line))]
        if head and frames:
            binary = frames[0]["binary"]
            name = binary if binary.startswith("[") else binary.rsplit("/", 1)[-1]
            chain = tuple(frame["function"] for frame in frames[1:])
            yield Sample(float(head["seconds"]), frames[0]["function"], name, chain)
