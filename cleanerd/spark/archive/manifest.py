"""The manifest of a cleaned archive: plain JSON, written last.

Files that it does not list are not part of the archive.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cleanerd import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.format.names import TopicPartition
    from cleanerd.spark.archive.partition import ArchiveTaskResult
    from cleanerd.spark.archive.target import ArchivedFile

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class CleanedDir:
    """One log directory of the archive. ``files``: its own; ``left_out``: partitions that are not in it."""

    source: str
    path: str
    files: tuple[ArchivedFile, ...]
    done: tuple[ArchiveTaskResult, ...]
    left_out: tuple[CleaningResult, ...]
    not_compacted: tuple[TopicPartition, ...]

    def to_json(self) -> dict[str, Any]:
        """As in the manifest."""
        return {
            "source": self.source,
            "path": self.path,
            "files": [each.to_json() for each in self.files],
            "partitions": [
                {
                    **each.result.to_json(),
                    "path": f"{self.path}/{each.work.name}",
                    "files": list(each.written),
                    "source_files": list(each.copied),
                }
                for each in self.done
            ],
            "left_out": [
                {
                    "topic": each.name.topic,
                    "partition": each.name.partition,
                    "outcome": each.outcome,
                    "cause": None if each.error is None else str(each.error.cause),
                    "reason": each.reason,
                }
                for each in self.left_out
            ],
            "not_compacted": [{"topic": name.topic, "partition": name.partition} for name in self.not_compacted],
        }


def manifest_bytes(
    run: str, directories: Sequence[CleanedDir], *, now_ms: int, errors: Sequence[Mapping[str, Any]]
) -> bytes:
    """The manifest. ``now_ms``: the time that the cleaning used; ``errors``: sources that could not be used."""
    document = {
        "format": FORMAT,
        "cleanerd": __version__,
        "run": run,
        "now_ms": now_ms,
        "log_dirs": [each.to_json() for each in directories],
        "errors": list(errors),
    }
    return json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"
