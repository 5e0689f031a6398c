"""Views of an imaginary daemon, of a busy broker's one or any that a test describes."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cleanerd.cleaner.hanging_transaction import OpenTransaction
from cleanerd.config.fingerprint import KAFKAS_FINGERPRINT
from cleanerd.daemon.view import (
    CanaryView,
    CleaningView,
    DaemonTotals,
    DaemonView,
    LogDirView,
    PartitionView,
    QuarantineView,
    RunningView,
    Trend,
)
from cleanerd.format.names import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

NOW_MS = 1_795_248_000_000
GIB = 1 << 30
HOUR_MS = 3_600_000
HEADER_FINGERPRINT = "strategy=header;tombstone.mode=null;header=version;encoding=long"

_TOPICS = (
    "orders", "payments.v2", "customers", "inventory-snapshots", "carts", "sessions", "prices", "user-profiles",
    "billing.ledger-changelog", "devices", "connect-offsets", "risk.scores", "catalog", "addresses", "ledger",
)  # fmt: skip
_REASONS = (
    "dirty ratio {ratio:.3f} is not above min.cleanable.dirty.ratio 0.5",
    "nothing to clean: dirty from offset {clean}, cleanable up to {clean} (set by the active segment)",
    "nothing to clean: dirty from offset {clean}, cleanable up to {clean} (set by min.compaction.lag.ms)",
)


def open_since(since_ms: int, topic: str = "orders", number: int = 0) -> OpenTransaction:
    """An open transaction of producer 4711, epoch 3, that began at offset 1200."""
    return OpenTransaction(TopicPartition(topic, number), 4711, 3, 1200, since_ms)


def partition(topic: str = "orders", number: int = 0, **changes: Any) -> PartitionView:
    """A partition that is not worth a cleaning."""
    plain = PartitionView(
        topic=topic,
        partition=number,
        log_dir="/var/lib/kafka/data-1",
        phase="idle",
        outlook="no",
        mode="live",
        reason="dirty ratio 0.250 is not above min.cleanable.dirty.ratio 0.5",
        strategy="offset",
        fingerprint=KAFKAS_FINGERPRINT,
        first_dirty_offset=7_500,
        first_uncleanable_offset=10_000,
        size_bytes=400_000,
        dirty_bytes=100_000,
        dirty_ratio=0.25,
        reclaimable_bytes=60_000,
        reclaimable_exact=False,
        reclaimable_low_bytes=50_000,
        reclaimable_high_bytes=70_000,
        reclaimable_method="sample",
        overdue_at_ms=None,
        next_purge_ms=None,
        delegated=None,
        fingerprint_changed=False,
        quarantine=None,
        last_cleaning=None,
    )
    return replace(plain, **changes)


def log_dir(path: str = "/var/lib/kafka/data-1", **changes: Any) -> LogDirView:
    """A log directory of a running broker with an agent, half full."""
    plain = LogDirView(
        path=path,
        online=True,
        mode="live",
        mode_reason="the broker's agent answers",
        total_bytes=2000 * GIB,
        free_bytes=900 * GIB,
        reserve_bytes=200 * GIB,
        agent={
            "protocol": 3,
            "build": "0.1.0",
            "ready": True,
            "capable": True,
            "version": "4.3.1",
            "pid": 4711,
            "cleaner": True,
            "java": "17.0.9",
            "self_test": "passed",
            "self_test_detail": "",
            "swaps": 812,
            "accepting_swaps": True,
            "pauses": ["orders-0"],
            "errors": [],
            "missing": [],
            "held": {
                lock: {"bounds_us": [1_000, 10_000], "counts": [8_000, 31, 0], "sum_us": 912_000, "longest_us": 4_100}
                for lock in ("log", "cleaner")
            },
            "kafka_cleaner": {
                "dead_threads": 0,
                "since_last_run_ms": 9_000,
                "uncleanable": 0,
                "uncleanable_names": [],
            },
        },
        node_id=3,
        kafka_cleaner="runs in this broker",
        kafka_cleaner_runs=True,
    )
    return replace(plain, **changes)


def clean(topic: str = "orders", number: int = 0, **changes: Any) -> CleaningView:
    """A cleaning that saved three quarters."""
    result: dict[str, Any] = {
        "topic": topic,
        "partition": number,
        "log_dir": "/var/lib/kafka/data-1",
        "outcome": "cleaned",
        "reason": "",
        "strategy": "offset",
        "first_dirty_offset": 5_000,
        "end_offset": 7_500,
        "records_read": 7_500,
        "records_kept": 1_900,
        "bytes_before": 4 * GIB,
        "bytes_after": 1 * GIB,
        "bytes_read": 3 * GIB,
        "bytes_written": 1 * GIB,
        "segments_before": 8,
        "segments_after": 2,
        "segments_rewritten": 8,
        "groups": 2,
        "removed": {"superseded": 5_400, "tombstone": 200, "aborted": 0, "no_key": 0, "marker": 0},
        "tombstones_waiting": 0,
        "malformed_versions": 0,
        "without_version": 0,
        "nulls_without_flag": 0,
        "far_future_timestamps": 0,
        "passes": 1,
        "seconds": {"index": 2.5, "decide": 1.25, "rewrite": 4.0, "swap": 0.5},
        "notes": [],
    }
    result.update(changes.pop("result", {}))
    plain = CleaningView(topic, number, NOW_MS - 20_000, NOW_MS - 10_000, "ratio", result)
    return replace(plain, **changes)


def trend(*, seed: int = 3) -> Trend:
    """A day with a night in it, and two hours in which the daemon was stopped."""
    dice = random.Random(seed)
    load = [0.15 + (0.85 if 48 <= at < 120 else 0) for at in range(144)]
    up = [not 20 <= at < 32 for at in range(144)]
    cleanings = [dice.randrange(int(9 * each) + 1) if is_up else None for each, is_up in zip(load, up, strict=True)]
    return Trend(
        every_ms=600_000,
        end_ms=NOW_MS - NOW_MS % 600_000 + 600_000,
        reclaimed_bytes=tuple(None if each is None else each * dice.randrange(GIB) for each in cleanings),
        dirty_bytes=tuple(
            int(GIB * (2 + 5 * each + dice.random())) if is_up else None for each, is_up in zip(load, up, strict=True)
        ),
        cleanings=tuple(cleanings),
        held_us=tuple(None if each is None else each and dice.randrange(400, 2600) for each in cleanings),
    )


def view(**changes: Any) -> DaemonView:
    """A healthy daemon that has nothing to do."""
    plain = DaemonView(
        version="0.1.0",
        started_ms=NOW_MS - 50 * HOUR_MS,
        made_ms=NOW_MS,
        ready=True,
        healthy=True,
        unhealthy_reason="",
        mode="auto",
        paused=False,
        threads=2,
        window_open=True,
        last_scan_ms=NOW_MS - 5_000,
        map_utilization=0.0,
        settings_generation=1,
        host="kafka-1.example",
        trend=trend(),
    )
    made = replace(plain, **changes)
    return replace(made, partitions=tuple(sorted(made.partitions, key=lambda p: (p.topic, p.partition, p.log_dir))))


def busy(partitions: int = 60, *, seed: int = 7, now_ms: int = NOW_MS) -> DaemonView:
    """A broker's day: ``partitions`` of all kinds in three log directories, two running cleanings, a history."""
    dice = random.Random(seed)
    directories = tuple(f"/var/lib/kafka/data-{n}" for n in (1, 2, 3))
    made = [_random_partition(n, partitions, directories, dice, now_ms) for n in range(partitions)]
    history = tuple(_random_clean(made[dice.randrange(len(made))], dice, now_ms - n * 97_000) for n in range(80))
    cleaned = [p for p in made if p.phase == "cleaning"]
    running = tuple(_running(p, n, now_ms) for n, p in enumerate(cleaned))
    return view(
        made_ms=now_ms,
        started_ms=now_ms - 50 * HOUR_MS,
        last_scan_ms=now_ms - 5_000,
        map_utilization=0.62,
        canary=CanaryView(
            "5 partitions", 1, 4096, 7, "", "orders-0", directories[0], "key-twice: 0.log: twice", now_ms
        ),
        log_dirs=(
            log_dir(directories[0]),
            log_dir(directories[1], free_bytes=150 * GIB),
            log_dir(
                directories[2],
                mode="on-start",
                mode_reason="no agent answers: staged for the next start",
                agent=None,
                free_bytes=1400 * GIB,
            ),
        ),
        partitions=tuple(made),
        running=running,
        history=history,
        warnings=("payments.v2: compaction.strategy is header, and the topic is not delegated",),
        totals=_totals(history),
    )


def _running(partition: PartitionView, number: int, now_ms: int) -> RunningView:
    return RunningView(
        partition.topic,
        partition.partition,
        partition.log_dir,
        started_ms=now_ms - 9_000 - 4_000 * number,
        trigger="ratio" if number else "overdue",
        phase="index" if number else "rewrite",
        done_bytes=partition.dirty_bytes * 3 // 5,
        total_bytes=partition.dirty_bytes,
    )


def _random_partition(
    number: int, count: int, directories: tuple[str, ...], dice: random.Random, now_ms: int
) -> PartitionView:
    topic = _TOPICS[number % len(_TOPICS)] if count <= 200 else f"{_TOPICS[number % len(_TOPICS)]}.{number % 97:02d}"
    header = topic.startswith(("payments", "inventory"))
    first_dirty_offset, ratio = dice.randrange(1_000_000_000), dice.betavariate(1.2, 3)
    size = int(dice.lognormvariate(21, 2))
    dirty = int(size * ratio)
    phase = (
        "cleaning" if number in (4, 11) else dice.choices(("idle", "queued", "staged", "excluded"), (90, 6, 2, 2))[0]
    )
    if number in (7, 21):
        phase = "quarantined"
    if phase == "idle" and topic.startswith("payments"):
        phase = "refused"
    since = now_ms - dice.randrange(1, 60) * HOUR_MS
    segment = f"{directories[number % 3]}/{topic}-{number // len(_TOPICS)}/00000000000000000000.log"
    damage = f"{segment} at byte 8421376: the checksum of the batch is 5f2a11c8, its bytes give 0c44de01"
    return PartitionView(
        topic=topic,
        partition=number // len(_TOPICS),
        log_dir=directories[number % 3],
        phase=phase,  # type: ignore[arg-type]
        outlook={"cleaning": "now", "queued": "next", "staged": "restart"}.get(phase, "no"),  # type: ignore[arg-type]
        mode="on-start" if number % 3 == 2 else "live",
        reason=_reason(phase, ratio, first_dirty_offset, dice),
        strategy="header" if header else "offset",
        fingerprint=HEADER_FINGERPRINT if header else KAFKAS_FINGERPRINT,
        first_dirty_offset=first_dirty_offset,
        first_uncleanable_offset=first_dirty_offset + dirty // 190,
        size_bytes=size,
        dirty_bytes=dirty,
        dirty_ratio=ratio,
        reclaimable_bytes=(saved := int(dirty * dice.uniform(0.2, 0.95))),
        reclaimable_exact=(exact := dice.random() < 0.2),
        reclaimable_low_bytes=saved if exact else int(saved * 0.9),
        reclaimable_high_bytes=saved if exact else int(saved * 1.1),
        reclaimable_method="exact" if exact else "sample",
        overdue_at_ms=now_ms + dice.randrange(-2, 40) * HOUR_MS if number % 5 == 0 else None,
        next_purge_ms=now_ms + dice.randrange(1, 90) * (HOUR_MS if number != 12 else -HOUR_MS)
        if number % 4 == 0
        else None,
        delegated=topic.startswith("inventory") if header else None,
        fingerprint_changed=number == 15,
        quarantine=QuarantineView(damage, since, 4, now_ms + 25 * 60_000) if phase == "quarantined" else None,
        last_cleaning=None
        if number % 2 == 0
        else clean(topic, number // len(_TOPICS), ended_ms=since, started_ms=since - 8_000),
        open_transaction=open_since(now_ms - HOUR_MS, topic, number // len(_TOPICS)) if number == 13 else None,
        waits_for=(2,) if number == 12 else (),
        waits_since_ms=now_ms - 90 * HOUR_MS if number == 12 else None,
        tombstones_kept=1200 if number == 12 else None,
    )


def _reason(phase: str, ratio: float, first_dirty_offset: int, dice: random.Random) -> str:
    reported = {
        "queued": f"dirty ratio {ratio:.3f} is above min.cleanable.dirty.ratio 0.5: waits for a worker",
        "cleaning": "overdue by max.compaction.lag.ms",
        "staged": "staged: swapped in at the broker's next start",
        "excluded": "cleanerd.topics.exclude matches it: left to Kafka's cleaner",
        "quarantined": "left alone after an error",
        "refused": "compaction.strategy=header needs delegation (Kafka's cleaner must skip it): run cleanerd delegate",
    }
    return reported.get(phase) or dice.choice(_REASONS).format(
        ratio=ratio, clean=f"{first_dirty_offset:,}".replace(",", "")
    )


def _random_clean(partition: PartitionView, dice: random.Random, ended_ms: int) -> CleaningView:
    before = max(1000, partition.size_bytes)
    after = int(before * dice.uniform(0.08, 0.9))
    outcome = dice.choices(("cleaned", "unchanged", "failed", "staged"), (86, 8, 3, 3))[0]
    records = before // 200
    kept = records * after // before
    changed: dict[str, Any] = {
        "outcome": outcome,
        "bytes_before": before,
        "bytes_after": before if outcome in ("failed", "unchanged") else after,
        "records_read": records, "records_kept": kept, "strategy": partition.strategy, "log_dir": partition.log_dir,
        "reason": "No space left on device" if outcome == "failed" else "",
        "removed": {"superseded": records - kept - 7, "tombstone": 5, "aborted": 2, "no_key": 0, "marker": 0},
    }  # fmt: skip
    return clean(
        partition.topic, partition.partition, started_ms=ended_ms - dice.randrange(300, 90_000), ended_ms=ended_ms,
        trigger=dice.choice(("ratio", "ratio", "overdue", "tombstone_removal", "manual")), result=changed,
    )  # fmt: skip


def _totals(history: tuple[CleaningView, ...]) -> DaemonTotals:
    cleanings: dict[str, int] = {}
    for each in history:
        cleanings[each.result["outcome"]] = cleanings.get(each.result["outcome"], 0) + 1
    return DaemonTotals(
        cleanings=cleanings,
        removed_records={"superseded": 48_211_904, "tombstone": 310_022, "aborted": 12, "no_key": 0, "marker": 4},
        read_records=61_000_000,
        kept_records=12_478_058,
        bytes_before=sum(each.result["bytes_before"] for each in history),
        bytes_after=sum(each.result["bytes_after"] for each in history),
        bytes_read=sum(each.result["bytes_before"] for each in history) * 2,
        bytes_written=sum(each.result["bytes_after"] for each in history),
        swaps=131,
        refused_swaps=3,
        throttled_seconds=12.5,
        seconds={"index": 201.5, "decide": 95.25, "rewrite": 340.0, "swap": 21.0},
    )


class Stage:
    """Holds the view that the server is to show."""

    def __init__(self, shown: DaemonView) -> None:
        self.shown = shown

    def __call__(self) -> DaemonView:
        return self.shown

    def change(self, how: Callable[[DaemonView], DaemonView]) -> None:
        self.shown = how(self.shown)
