"""Compares the statuses of a cluster's daemons: differences, faults, and what a cleaning would save. Pure.

Every text comes from another host, so it is shown in lines of 80 columns at most, without control characters (OP-25).
"""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from cleanerd.admin.peers import NOT_A_STATUS, NoStatus, digests_in
from cleanerd.humanize import counted, human_bytes, human_change
from cleanerd.policy.state_digest import ReplicaDigests, first_difference

SIZES_DIFFER_RATIO: Final = 1.5
SIZES_DIFFER_BYTES: Final = 16 * 1024 * 1024
"""Replicas are cleaned at different times, so their sizes always differ; a larger difference should be checked."""

NO_ANSWER, UNWELL = 4, 1
WIDTH: Final = 80
_MOST_CHARACTERS: Final = 2000
SHOWN: Final = 10
"""Limit of lines of each kind in the text; --json has all."""


@dataclass(frozen=True, slots=True)
class DaemonAnswer:
    """One daemon's ``/status``, or the ``error``."""

    target: str
    status: Mapping[str, Any] | None
    error: str = ""

    @classmethod
    def of(cls, target: str, answer: Any) -> DaemonAnswer:
        """From the answer of ``target``; an incomplete document becomes an error."""
        if isinstance(answer, NoStatus):
            return cls(target, None, answer.reason)
        try:
            alone = [cls(target, answer)]
            comparison_lines(compare(alone))  # a number can be too large to be shown
            saving_lines(reclaimable(alone), alone, None)
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError, OverflowError):
            return cls(target, None, NOT_A_STATUS)
        return cls(target, answer)


@dataclass(frozen=True, slots=True)
class DaemonRow:
    """One daemon's row. ``cleanerd``: its release; empty if it does not answer.

    ``canary_holds``: it cleans nothing, because a verification found an error (D-20).
    """

    target: str
    healthy: bool
    remarks: str
    host: str = ""
    node_ids: tuple[int, ...] = ()
    kafka: tuple[str, ...] = ()
    cleanerd: str = ""
    mode: str = ""
    partitions: int = 0
    reclaimed_bytes: int = 0
    canary_holds: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference in one topic or partition; ``by_target``: each daemon's value."""

    what: str
    by_target: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClusterComparison:
    """The comparison.

    ``drift``, ``undelegated``, ``quarantined``, ``states`` and ``down`` are faults; the rest may be temporary.

    ``drift``: topics that are cleaned by different strategies. ``first_dirty_offsets``, ``sizes``: replicas that
    differ. ``states``: replicas with different latest states (U-90). ``held``: partitions with tombstones past their
    delete horizon that wait for a replica. ``erasures``: open requests to erase a key. ``down``: brokers that have
    replicas but do not run.
    """

    rows: tuple[DaemonRow, ...]
    drift: tuple[Difference, ...]
    undelegated: tuple[Difference, ...]
    quarantined: tuple[Difference, ...]
    first_dirty_offsets: tuple[Difference, ...]
    sizes: tuple[Difference, ...]
    states: tuple[Difference, ...]
    versions: tuple[str, ...]
    bytes_before: int
    bytes_after: int
    held: tuple[Difference, ...] = ()
    erasures: tuple[Difference, ...] = ()
    down: tuple[int, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 if all is well; 4 if a daemon does not answer; 1 if one is unhealthy or holds, or there is a fault."""
        if self.down or any(not row.cleanerd for row in self.rows):
            return NO_ANSWER
        differ = self.drift or self.undelegated or self.quarantined or self.states
        wrong = differ or any(not row.healthy or row.canary_holds for row in self.rows)
        return UNWELL if wrong else 0

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.exit_code == 0, **asdict(self)}


class _Replica(NamedTuple):
    target: str
    entry: Mapping[str, Any]


def of_one_cluster(answers: Sequence[DaemonAnswer], cluster_id: str | None = None) -> list[DaemonAnswer]:
    """The answers, with an error for daemons of another cluster than ``cluster_id``; None: than most of them."""
    ids = [_cluster_ids(answer.status) for answer in answers]
    expected = cluster_id or next(
        (each for each, _ in Counter(one for found in ids for one in found).most_common(1)), None
    )
    return [
        DaemonAnswer(answer.target, None, f"is of another cluster: {', '.join(sorted(found))}, not {expected}")
        if found and expected not in found
        else answer
        for answer, found in zip(answers, ids, strict=True)
    ]


def _cluster_ids(status: Mapping[str, Any] | None) -> set[str]:
    found = (each.get("cluster_id") for each in ([] if status is None else status["log_dirs"]))
    return {str(each) for each in found if each is not None}


def compare(answers: Sequence[DaemonAnswer], down: Sequence[int] = ()) -> ClusterComparison:
    """Compare them in the order of the command line. ``down``: brokers that do not run."""
    statuses = {answer.target: answer.status for answer in answers if answer.status is not None}
    by_partition: dict[tuple[str, int], list[_Replica]] = defaultdict(list)
    for target, status in statuses.items():
        for entry in status["partitions"]:
            by_partition[(str(entry["topic"]), int(entry["partition"]))].append(_Replica(target, entry))
    ordered = [by_partition[key] for key in sorted(by_partition)]
    totals = [status["totals"] for status in statuses.values()]
    return ClusterComparison(
        rows=tuple(_row(answer) for answer in answers),
        drift=tuple(_drift(ordered)),
        undelegated=_undelegated(ordered),
        quarantined=tuple(_quarantined(ordered)),
        first_dirty_offsets=tuple(_first_dirty_offsets(ordered)),
        sizes=tuple(_sizes(ordered)),
        states=tuple(_states(statuses)),
        versions=tuple(sorted({str(status["version"]) for status in statuses.values()})),
        bytes_before=sum(int(each["bytes_before"]) for each in totals),
        bytes_after=sum(int(each["bytes_after"]) for each in totals),
        held=tuple(_held(ordered, {target: int(status["made_ms"]) for target, status in statuses.items()})),
        erasures=tuple(_erasures(statuses)),
        down=tuple(down),
    )


def _row(answer: DaemonAnswer) -> DaemonRow:
    status = answer.status
    if status is None:
        return DaemonRow(target=answer.target, healthy=False, remarks=answer.error)
    dirs, totals = status["log_dirs"], status["totals"]
    held = (status.get("canary") or {}).get("held_partition")
    kafka = {str(each["agent"]["version"]) for each in dirs if each.get("agent") and each["agent"].get("version")}
    remarks = [
        "" if status["healthy"] else str(status["unhealthy_reason"]),
        "" if status["ready"] else "not ready",
        "paused" if status["paused"] else "",
        "" if held is None else f"the canary holds: {held or 'its state cannot be read'}",
        *(f"{each['path']} offline" for each in dirs if not each["online"]),
    ]
    return DaemonRow(
        target=answer.target,
        host=str(status.get("host", "")),
        node_ids=tuple(sorted({int(each["node_id"]) for each in dirs if each.get("node_id") is not None})),
        kafka=tuple(sorted(kafka)),
        cleanerd=str(status["version"]),
        mode=str(status["mode"]),
        partitions=len(status["partitions"]),
        reclaimed_bytes=int(totals["bytes_before"]) - int(totals["bytes_after"]),
        canary_holds=held is not None,
        healthy=bool(status["healthy"]),
        remarks=", ".join(word for word in remarks if word),
    )


def _name(replica: _Replica) -> str:
    return f"{replica.entry['topic']}-{replica.entry['partition']}"


def _drift(ordered: Sequence[Sequence[_Replica]]) -> Iterator[Difference]:
    """U-6: topics whose fingerprints differ; an unscanned partition has none."""
    rules: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for replicas in ordered:
        for target, entry in replicas:
            if entry["fingerprint"]:
                topic, known = str(entry["topic"]), rules[str(entry["topic"])]
                rules[topic][target] = {**known.get(target, {}), str(entry["fingerprint"]): str(entry["strategy"])}
    for topic, by_target in rules.items():
        if len({fingerprint for fingerprints in by_target.values() for fingerprint in fingerprints}) > 1:
            values = {
                target: " and ".join(
                    f"{strategy} ({fingerprint[:8]})" for fingerprint, strategy in fingerprints.items()
                )
                for target, fingerprints in by_target.items()
            }
            yield Difference(topic, values)


def _undelegated(ordered: Sequence[Sequence[_Replica]]) -> tuple[Difference, ...]:
    """U-8: topics that the broker's own cleaner would clean by other rules, and the daemons that report them."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for replicas in ordered:
        for target, entry in replicas:
            if entry["delegated"] is False:
                found[str(entry["topic"])][target] = "not delegated"
    return tuple(Difference(topic, by_target) for topic, by_target in found.items())


def _quarantined(ordered: Sequence[Sequence[_Replica]]) -> Iterator[Difference]:
    for replicas in ordered:
        held = {each.target: str(each.entry["quarantine"]["reason"]) for each in replicas if each.entry["quarantine"]}
        if held:
            yield Difference(_name(replicas[0]), held)


def _first_dirty_offsets(ordered: Sequence[Sequence[_Replica]]) -> Iterator[Difference]:
    for replicas in ordered:
        points = {
            each.target: each.entry["first_dirty_offset"]
            for each in replicas
            if each.entry["first_dirty_offset"] is not None
        }
        if len(set(points.values())) > 1:
            yield Difference(_name(replicas[0]), {target: str(offset) for target, offset in points.items()})


def _sizes(ordered: Sequence[Sequence[_Replica]]) -> Iterator[Difference]:
    for replicas in ordered:
        sizes = {e.target: int(e.entry["size_bytes"]) for e in replicas if e.entry["size_bytes"] is not None}
        if not sizes:
            continue
        least, most = min(sizes.values()), max(sizes.values())
        if most - least >= SIZES_DIFFER_BYTES and most >= SIZES_DIFFER_RATIO * least:
            yield Difference(_name(replicas[0]), {target: human_bytes(size) for target, size in sizes.items()})


def _states(statuses: Mapping[str, Mapping[str, Any]]) -> Iterator[Difference]:
    """U-90: replicas whose digests differ at the highest offset that both have."""
    replicas: dict[str, dict[str, ReplicaDigests]] = defaultdict(dict)
    for target, status in statuses.items():
        for name, known in digests_in(status).items():
            replicas[name][target] = known
    for name, by_target in sorted(replicas.items()):
        found = first_difference(by_target)
        if found is not None:
            texts = {target: f"{each.digest[:8]} ({each.keys:,} keys)" for target, each in found.by_replica.items()}
            yield Difference(f"{name} below offset {found.end_offset}", texts)


def _held(ordered: Sequence[Sequence[_Replica]], made_ms: Mapping[str, int]) -> Iterator[Difference]:
    """U-70: partitions past their delete horizon that wait, because a replica is less clean or lacks them."""
    for replicas in ordered:
        found = {}
        for target, entry in replicas:
            waits_for, due_ms = entry.get("waits_for"), entry["next_purge_ms"]
            if waits_for and due_ms is not None and int(due_ms) <= made_ms[target]:
                found[target] = f"wait for broker {', '.join(str(int(each)) for each in waits_for)}"
        if found:
            yield Difference(_name(replicas[0]), found)


def _erasures(statuses: Mapping[str, Mapping[str, Any]]) -> Iterator[Difference]:
    """Open requests by id; an older release reports none."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for target, status in statuses.items():
        for each in status.get("erasures", ()):
            stages = Counter(str(stage["stage"]) for stage in each["stages"])
            overdue = "overdue, " if int(each["deadline_ms"]) <= int(status["made_ms"]) else ""
            text = overdue + ", ".join(f"{count} {stage}" for stage, count in sorted(stages.items()))
            found[f"{each['topic']} ({each['id']})"][target] = text or "no partition"
    for what in sorted(found):
        yield Difference(what, found[what])


@dataclass(frozen=True, slots=True)
class TopicSaving:
    """What a cleaning of all ``replicas`` of a topic would save, from ``low_bytes`` to ``high_bytes``.

    ``unknown``: replicas without an estimate. ``daemons``: how many report the topic.
    """

    topic: str
    daemons: int
    replicas: int
    unknown: int
    size_bytes: int
    dirty_bytes: int
    reclaimable_bytes: int
    low_bytes: int
    high_bytes: int


def reclaimable(answers: Sequence[DaemonAnswer]) -> list[TopicSaving]:
    """By topic, the largest saving first; topics that the settings exclude are left out."""
    found: dict[str, list[_Replica]] = defaultdict(list)
    for answer in answers:
        for entry in () if answer.status is None else answer.status["partitions"]:
            if entry["state"] != "excluded":
                found[str(entry["topic"])].append(_Replica(answer.target, entry))
    made = [_saving(topic, replicas) for topic, replicas in found.items()]
    return sorted(made, key=lambda each: (-each.reclaimable_bytes, each.topic))


def _saving(topic: str, replicas: Sequence[_Replica]) -> TopicSaving:
    def total(name: str) -> int:
        return sum(max(0, int(each.entry[name] or 0)) for each in replicas)

    known = total("reclaimable_bytes")
    return TopicSaving(
        topic=topic,
        daemons=len({each.target for each in replicas}),
        replicas=len(replicas),
        unknown=sum(each.entry["reclaimable_bytes"] is None for each in replicas),
        size_bytes=total("size_bytes"),
        dirty_bytes=total("dirty_bytes"),
        reclaimable_bytes=known,
        low_bytes=min(known, total("reclaimable_low_bytes")),
        high_bytes=max(known, total("reclaimable_high_bytes")),
    )


# -- text -------------------------------------------------------------------------------------------------------------

_DAEMONS: Final = (
    ("daemon", 24),
    ("node", 5),
    ("Kafka", 6),
    ("cleanerd", 8),
    ("mode", 8),
    ("logs", -6),
    ("reclaimed", -9),
)
_TOPICS: Final = (("topic", 30), ("replicas", -8), ("size", -10), ("dirty", -10), ("reclaimable", -12))
"""Columns and their widths; those with a minus are aligned to the right."""


def comparison_lines(found: ClusterComparison) -> list[str]:
    """The comparison in words."""
    lines = [_aligned(_DAEMONS, [name for name, _ in _DAEMONS])]
    for row in found.rows:
        lines += _row_lines(row)
    kinds = (
        ("cleaned by different strategies", found.drift),
        ("not delegated", found.undelegated),
        ("in quarantine", found.quarantined),
        ("replicas with different latest states", found.states),
        ("open erasures", found.erasures),
        ("tombstones that wait for a replica", found.held),
        ("replicas with different first dirty offsets", found.first_dirty_offsets),
        ("replicas with different sizes", found.sizes),
    )
    for title, differences in kinds:
        if differences:
            lines += ["", f"{title} ({len(differences):,}):"]
            lines += [line for each in differences[:SHOWN] for line in _folded(f"  {each.what}  {_shared_text(each)}")]
        if len(differences) > SHOWN:
            lines.append(f"  and {len(differences) - SHOWN:,} more (--json has all)")
    if found.down:
        lines += ["", *_folded(f"brokers that are down: {', '.join(map(str, found.down))}")]
    answering = sum(bool(row.cleanerd) for row in found.rows)
    change = human_change(found.bytes_before, found.bytes_after)
    lines += [
        "",
        *_folded(
            f"{counted(answering, 'daemon')} of {len(found.rows)} answered; reclaimed since their starts: {change}"
        ),
    ]
    if len(found.versions) > 1:
        lines += _folded(f"different releases of cleanerd: {', '.join(found.versions)}")
    return lines


def saving_lines(savings: Sequence[TopicSaving], answers: Sequence[DaemonAnswer], top: int | None) -> list[str]:
    """The savings in words: the ``top`` largest topics (None: all), their sum, and the daemons that did not answer."""
    lines = [_aligned(_TOPICS, [name for name, _ in _TOPICS])]
    for each in savings[:top]:
        saved = human_bytes(each.reclaimable_bytes)
        cells = [each.topic, f"{each.replicas:,}", human_bytes(each.size_bytes), human_bytes(each.dirty_bytes), saved]
        lines += _cell_lines(_TOPICS, cells)
    if top is not None and top < len(savings):
        lines.append(f"and {counted(len(savings) - top, 'more topic')}; --top sets how many are shown")
    saved, low, high = (
        sum(getattr(each, name) for each in savings) for name in ("reclaimable_bytes", "low_bytes", "high_bytes")
    )
    between = "" if low == high else f" (between {human_bytes(low)} and {human_bytes(high)})"
    answered = sum(answer.status is not None for answer in answers)
    lines += ["", *_folded(
        f"{counted(answered, 'daemon')} of {len(answers)} answered; cleaning would save {human_bytes(saved)}{between} "
        f"of {human_bytes(sum(each.size_bytes for each in savings))}"
    )]  # fmt: skip
    if unknown := sum(each.unknown for each in savings):
        lines += _folded(f"not estimated yet: {counted(unknown, 'replica')}")
    return lines + [line for each in answers if each.status is None for line in _folded(f"{each.target}: {each.error}")]


def _row_lines(row: DaemonRow) -> list[str]:
    if not row.cleanerd:
        return _folded(f"{row.target}  {row.remarks}")
    nodes, kafka = ",".join(map(str, row.node_ids)) or "?", ",".join(row.kafka) or "?"
    saved = human_bytes(row.reclaimed_bytes)
    lines = _cell_lines(_DAEMONS, [row.target, nodes, kafka, row.cleanerd, row.mode, f"{row.partitions:,}", saved])
    return lines + (_folded(f"    {row.remarks}") if row.remarks else [])


def _cell_lines(columns: Sequence[tuple[str, int]], cells: Sequence[str]) -> list[str]:
    """The lines of a row: a first cell that is too wide has its own lines; others are cut."""
    first = _printable(cells[0])
    if len(first) <= columns[0][1]:
        return [_aligned(columns, cells)]
    return [*_folded(first), _aligned(columns, ["", *cells[1:]])]


def _aligned(columns: Sequence[tuple[str, int]], cells: Sequence[str]) -> str:
    texts = []
    for (_, width), cell in zip(columns, cells, strict=True):
        text, most = _printable(cell), abs(width)
        text = text if len(text) <= most else f"{text[: most - 1]}~"
        texts.append(text.ljust(most) if width > 0 else text.rjust(most))
    return "  ".join(texts).rstrip()


def _folded(text: str) -> list[str]:
    indent = " " * (len(text) - len(text.lstrip(" ")))
    return textwrap.wrap(
        _printable(text), WIDTH, subsequent_indent=f"{indent}    ", break_on_hyphens=False, drop_whitespace=True
    ) or [""]


def _printable(text: str) -> str:
    """The text without control characters, and at most a screen of it."""
    text = text[:_MOST_CHARACTERS]
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def _shared_text(each: Difference) -> str:
    """The values of a difference; equal text of several daemons is printed once."""
    by_word: dict[str, list[str]] = {}
    for target, word in each.by_target.items():
        by_word.setdefault(word, []).append(target)
    return "; ".join(f"{word}: {', '.join(targets)}" for word, targets in by_word.items())
