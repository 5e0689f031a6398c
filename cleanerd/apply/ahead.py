"""Staging ahead of a broker's restart: everything but the swap, also beside a running broker (8.4, U-15).

::

    survey -> plan -> decide -> all groups: stage, verify -> are the sources what was read? -> ready.json -> manifest

Nothing of the log is touched. Witnesses show at the end, and again before the swap, whether the broker deleted,
truncated or cleaned what the decision rests on; appended segments do not matter, but for the keys of tombstones that
go (``apply/late.py``).
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from cleanerd.apply.files import Owner, PartitionFiles
from cleanerd.apply.late import stage_purged_keys
from cleanerd.apply.offline import blank_result, counted, make_plan, manifest_of, unchanged_facts
from cleanerd.apply.session import disk_reserve_bytes
from cleanerd.apply.swap import drop_plans
from cleanerd.apply.validate import refuse_unfinished, validate_plan
from cleanerd.cleaner.cleaner import Cleaning, Progress
from cleanerd.cleaner.manifest import READY, FileFact, staging_path, write_manifest
from cleanerd.cleaner.result import CleaningResult
from cleanerd.cleaner.survey import Survey, Wishes, survey
from cleanerd.errors import CleanerdError, CorruptionError, RefusedError
from cleanerd.log.pool import ReaderPool

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.apply.session import Means
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.clean_point import StateStore
    from cleanerd.log.log_dir import LogDir
    from cleanerd.log.topic_config import TopicConfig

FORMAT: Final = 2


@dataclass(frozen=True, slots=True)
class Ready:
    """What ``ready.json`` adds to the manifest. ``clean_to`` is None when the clean point must not move.

    ``keep_replaced``: the directory that ``apply`` keeps the replaced segments in (S-40); None: nowhere. ``purged`` is
    the file with the keys whose tombstones go, None when no record that comes late matters to the plan (U-1).
    """

    clean_to: int | None
    strategy: str
    result: dict[str, Any]
    keep_replaced: str | None = None
    purged: FileFact | None = None

    def to_json(self) -> bytes:
        """The file's bytes."""
        document = {
            "format": FORMAT,
            "clean_to": self.clean_to,
            "strategy": self.strategy,
            "keep_replaced": self.keep_replaced,
            "purged": None if self.purged is None else asdict(self.purged),
            "result": self.result,
        }
        return json.dumps(document, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes, where: str) -> Ready:
        """Read it back.

        Raises:
            CorruptionError: it is no such file, or one of another release; the plan can be staged again.
        """
        try:
            document = json.loads(data)
            clean_to, strategy, result = document["clean_to"], document["strategy"], document["result"]
            purged = None if document["purged"] is None else FileFact(**document["purged"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise CorruptionError("is no record of a staged plan", where=where) from None
        kept = document.get("keep_replaced")
        sound = (clean_to is None or isinstance(clean_to, int)) and isinstance(result, dict)
        sound = sound and (kept is None or isinstance(kept, str))
        if document.get("format") != FORMAT or not sound or not isinstance(strategy, str):
            raise CorruptionError("is no record of a staged plan that this release knows", where=where)
        return cls(clean_to, strategy, result, kept, purged)


def stage_partition(
    log_dir: LogDir,
    store: StateStore,
    means: Means,
    name: TopicPartition,
    config: TopicConfig,
    wishes: Wishes,
    progress: Progress,
    *,
    keep_replaced: Path | None = None,
) -> CleaningResult:
    """Stage one partition and say what came of it; only a signal or a bug gets out as an exception.

    ``keep_replaced``: where ``apply`` is to keep what it replaces.
    """
    where = str(log_dir.path)
    # The plan's age counts from here: its horizons do, however long staging takes.
    started_ms = time.time_ns() // 1_000_000
    try:
        with PartitionFiles(log_dir.path / str(name)) as files:
            files.claim()
            refuse_unfinished(files, files.names())
            found = survey(log_dir, name, config, store, wishes)
            if not found.to_clean:
                return blank_result(log_dir, found)
            with ReaderPool(str(found.log.path), workers=means.workers, chunk_bytes=means.chunk_bytes) as pool:
                plan = make_plan(log_dir, found, means, wishes, pool.reader)
                # U-15: the old values stay readable until the plan is applied, at the latest in so long.
                plan = replace(plan, delete_retention_ms=plan.delete_retention_ms + means.plan_max_age_ms)
                cleaning = Cleaning(plan, pool, progress)
                kept = None if keep_replaced is None else str(keep_replaced.resolve())
                return _stage_all(files, found, cleaning, means, blank_result(log_dir, found), started_ms, kept)
    except (CleanerdError, OSError) as caught:
        error = caught if isinstance(caught, CleanerdError) else CleanerdError(str(caught), where=where)
        return CleaningResult(name, where, "quarantined", str(error), error=error)


def _stage_all(
    files: PartitionFiles,
    found: Survey,
    cleaning: Cleaning,
    means: Means,
    blank: CleaningResult,
    started_ms: int,
    keep_replaced: str | None,
) -> CleaningResult:
    """All groups; ``ready.json``, then the manifest, which alone makes them count."""
    plan = cleaning.plan
    if overflowed := cleaning.overflowed():
        raise RefusedError(
            f"the offsets of segment {overflowed[0].source.base} pass 2^31-1 above its base: it has to be split first, "
            "which stage does not do (C-67)",
            where=plan.path,
            hint="stop the broker and run cleanerd clean on it",
        )
    if not cleaning.groups():
        return replace(counted(blank, found, cleaning), outcome="unchanged")
    # At most one ready plan. The claim is ours and nothing is half swapped, so nobody needs what is there.
    drop_plans(files)
    reserve_bytes = disk_reserve_bytes(means, found.config, plan.path)
    with cleaning.staging(reserve_bytes) as staging:
        try:
            groups = tuple(staged for staged, _ in cleaning.staged_groups(staging))
            witnesses = tuple(segment.witness for segment in cleaning.decision.segments)
            manifest = replace(manifest_of(plan, groups, witnesses, means), created_ms=started_ms)
            validate_plan(files, manifest, unchanged_facts(plan), checksums=False)
            result = replace(counted(blank, found, cleaning), outcome="staged")
            clean_to = max(plan.end_offset, found.proven_offset) if found.moves_clean_point else None
            purged = stage_purged_keys(files, cleaning, _owner(files))
            ready = Ready(clean_to, plan.rules.strategy, result.to_json(), keep_replaced, purged)
            name = f"{staging_path(plan.plan_id)}/{READY}"
            files.write(name, ready.to_json(), _owner(files))
            files.fsync(name)
            write_manifest(staging.directory, manifest, where=staging.path)
        except BaseException:
            staging.discard()
            raise
    return result


def _owner(files: PartitionFiles) -> Owner:
    status = files.stat(".")
    return Owner(-1, -1, 0o644) if status is None else Owner(status.st_uid, status.st_gid, 0o644)
