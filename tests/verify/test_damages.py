"""``verify`` finds every kind of damage, names file and rule, and reports nothing for the undamaged log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from cleanerd.verify.finding import Findings, Severity
from cleanerd.verify.log_dir import read_surroundings, verify_in_surroundings
from cleanerd.verify.partition import VerifyRequest
from tests.support.log_dirs import CLEANER_CHECKPOINT, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, write_checkpoint
from tests.support.logs import encode_batch, encode_record, seal
from tests.verify import cleaned_partition as s
from tests.verify.cleaned_partition import NOW, Scene, T, findings, record

if TYPE_CHECKING:
    from collections.abc import Callable


def test_nothing_wrong(scene: Scene) -> None:
    assert findings(scene, None) == []
    assert findings(scene, scene.copy) == []


@dataclass(frozen=True, slots=True)
class Damage:
    """``rule`` and end of the finding's file name; ``against``: only a comparison with the copy finds it."""

    name: str
    do: Callable[[Scene], object]
    rule: str
    file: str = ".log"
    against: bool = False
    offset: int | None = None
    severity: Severity = Severity.ERROR


def _rebuilt(key: str, value: str | None, timestamp: int = T + 10, **fields: int) -> bytes:
    """The batch of the offsets 3 and 4 with another record."""
    return encode_batch([record(key, value, 0, timestamp)], base_offset=3, last_offset_delta=1, **fields)


def _second(batch: bytes) -> Callable[[Scene], None]:
    return lambda scene: scene.put(0, batch + s.LAST_OF_7_CLEANED)


def _tail(batches: bytes) -> Callable[[Scene], None]:
    return lambda scene: scene.put(14, batches)


def _bad_record() -> bytes:
    """A right checksum over a record that is longer than its length says."""
    good = encode_record(record("a", "2", 0), offset_delta=0, timestamp_delta=0)
    payload = bytes([good[0] - 2]) + good[1:]
    return encode_batch([record("a", "2", 0)], base_offset=3, last_offset_delta=1, payload=payload)


def _crc(scene: Scene) -> None:
    data = scene.file(0).read_bytes()
    scene.patch(scene.file(0), len(s.SECOND_CLEANED) - 1, bytes([data[len(s.SECOND_CLEANED) - 1] ^ 1]))


def _resurrected(scene: Scene) -> None:
    """The last record of d is missing, and the previous one is there again."""
    scene.put(0, s.SECOND_CLEANED + s.LAST_OF_7)
    scene.put(13, encode_batch([], base_offset=13, leader_epoch=1))


def _aborted_is_back(scene: Scene) -> None:
    visible = encode_batch([record("x", "1", 0)], base_offset=7)
    scene.put(7, visible + b"".join(s.TRANSACTIONS) + s.HELD)


def _epoch_back(scene: Scene) -> None:
    scene.put(13, encode_batch([record("d", "5", 0)], base_offset=13, leader_epoch=5))


def _checkpoint(name: str, offset: int) -> Callable[[Scene], None]:
    return lambda scene: write_checkpoint(scene.log_dir / name, {s.NAME: offset})


def _cut(scene: Scene) -> None:
    scene.file(7).write_bytes(scene.file(7).read_bytes()[:-9])


TIMELESS = encode_batch(s.TOMBSTONE[:1], base_offset=11, last_offset_delta=1, delete_horizon=s.HORIZON)
MOVED = encode_batch(s.TOMBSTONE, base_offset=11, delete_horizon=s.HORIZON + 1)
SECOND_BYTES = len(s.SECOND_CLEANED)

DAMAGES = [
    # against the copy
    Damage("altered value", _second(_rebuilt("a", "3")), "S-08", against=True, offset=3),
    Damage("altered key", _second(_rebuilt("q", "2")), "S-08", against=True, offset=3),
    Damage("altered timestamp", _second(_rebuilt("a", "2", T + 11)), "S-08", against=True, offset=3),
    Damage("altered producer", _second(_rebuilt("a", "2", producer_id=3)), "C-52", against=True),
    Damage("altered leader epoch", lambda c: c.put(13, encode_batch([record("d", "5", 0)], base_offset=13)), "C-52",
           against=True, offset=13),
    Damage("altered last offset", _second(encode_batch([record("a", "2", 0, T + 10)], base_offset=3)), "C-52",
           against=True, offset=3),
    Damage("invented record",
           _second(encode_batch([record("a", "2", 0, T + 10), record("q", "1", 1)], base_offset=3)), "S-08",
           against=True, offset=4),
    Damage("dropped record", _second(encode_batch([], base_offset=3, last_offset_delta=1)), "R280-9", against=True,
           offset=3),
    Damage("dropped batch", lambda c: c.put(0, s.LAST_OF_7_CLEANED), "R280-9", against=True, offset=3),
    Damage("resurrected key", _resurrected, "R534-6", against=True, offset=5),
    Damage("lost retained record of a resurrected key", _resurrected, "R280-9", against=True, offset=13),
    Damage("aborted record is back", _aborted_is_back, "R534-6", against=True, offset=7),
    Damage("tombstone gone early", lambda c: c.put(7, b"".join(s.TRANSACTIONS) + TIMELESS), "R280-9", against=True,
           offset=12),
    Damage("horizon moved", lambda c: c.put(7, b"".join(s.TRANSACTIONS) + MOVED), "R534-2", against=True, offset=11),
    Damage("record missing above the checkpoint",
           _tail(s.ACTIVE[: -len(s.END)] + encode_batch([record("a", "9", 1)], base_offset=16, leader_epoch=1)),
           "C-45.1", against=True, offset=16),
    Damage("batch missing above the checkpoint", _tail(s.ACTIVE[len(s.ABORTED) :]), "C-45.1", against=True, offset=14),
    Damage("end of the log gone", _tail(s.ACTIVE[: -len(s.END)]), "R280-9", against=True, offset=16),
    Damage("last batch of a producer, by the copy", lambda c: c.put(0, s.SECOND_CLEANED), "R192-1", s.NAME,
           against=True, offset=6),
    # batches
    Damage("last batch of a producer, by the snapshot", lambda c: c.put(0, s.SECOND_CLEANED), "R192-1", ".snapshot",
           offset=6),
    Damage("cut batch", _cut, "F-1"),
    Damage("checksum", _crc, "F-2"),
    Damage("magic", lambda c: c.patch(c.file(0), 16, b"\x07"), "F-1"),
    Damage("record structure", _second(_bad_record()), "F-2.3"),
    Damage("order of offsets", lambda c: c.put(0, s.LAST_OF_7_CLEANED + s.SECOND_CLEANED), "F-5", offset=3,
           severity=Severity.WARNING),
    Damage("offset of the next segment", lambda c: c.put(7, b"".join(s.TRANSACTIONS) + encode_batch(
        [record("b", "2", 0)], base_offset=11, last_offset_delta=2)), "F-5", offset=13,
           severity=Severity.WARNING),
    Damage("offset below the segment", lambda c: c.put(13, encode_batch([record("d", "5", 0)], base_offset=12)), "F-5",
           offset=12),
    # keys
    Damage("duplicate key", lambda c: c.put(0, s.SECOND_CLEANED + s.LAST_OF_7), "C-45", offset=5),
    Damage("keyless record", _second(s.SECOND), "C-45.2", offset=4),
    # indexes
    Damage("index position", lambda c: c.file(0, ".index").write_bytes(s.offset_entries((6, SECOND_BYTES + 1))), "F-6",
           ".index", offset=6),
    Damage("index entry that skips", lambda c: c.file(0, ".index").write_bytes(s.offset_entries((3, SECOND_BYTES))),
           "F-6", ".index", offset=3),
    Damage("index entry beyond the end",
           lambda c: c.file(0, ".index").write_bytes(s.offset_entries((99, SECOND_BYTES))), "F-6", ".index", offset=99),
    Damage("index of half an entry", lambda c: c.file(0, ".index").write_bytes(b"\1" * 12), "F-6", ".index"),
    Damage("index that falls", lambda c: c.file(0, ".index").write_bytes(s.offset_entries((6, 90), (4, 95))), "F-6",
           ".index"),
    Damage("time index without its last entry", lambda c: c.file(7, ".timeindex").write_bytes(b""), "H-25",
           ".timeindex"),
    Damage("time index with another time", lambda c: c.file(0, ".timeindex").write_bytes(s.time_entries((T + 11, 4))),
           "F-7", ".timeindex", offset=4),
    Damage("time index entry that skips", lambda c: c.file(0, ".timeindex").write_bytes(s.time_entries((T + 10, 6))),
           "F-7", ".timeindex", offset=6),
    # transaction index
    Damage("stray transaction", lambda c: c.file(7, ".txnindex").write_bytes(
        s.txn_index((9, 7, 8, 9), (9, 9, 11, 12))), "F-8", ".txnindex", offset=11),
    Damage("transaction that was committed", lambda c: c.file(7, ".txnindex").write_bytes(
        s.txn_index((9, 7, 8, 9), (9, 9, 10, 11))), "F-8", ".txnindex", offset=10),
    Damage("missing transaction", lambda c: c.file(14, ".txnindex").unlink(), "C-69", ".txnindex", offset=15),
    Damage("transaction that begins late", lambda c: c.file(14, ".txnindex").write_bytes(s.txn_index((9, 15, 15, 16))),
           "F-8", ".txnindex", offset=15),
    Damage("transaction that hides another",
           lambda c: c.file(14, ".txnindex").write_bytes(s.txn_index((9, 9, 15, 16))), "F-8", ".txnindex", offset=15),
    Damage("transaction of another producer",
           lambda c: c.file(14, ".txnindex").write_bytes(s.txn_index((8, 14, 15, 16))), "F-8", ".txnindex", offset=15),
    # producer snapshots
    Damage("last sequence", lambda c: c.file(7, ".snapshot").write_bytes(s.snapshot((7, 0, 5, 6, 1, T, -1, -1))),
           "F-10", ".snapshot", offset=6),
    Damage("producer missing", lambda c: c.file(14, ".snapshot").write_bytes(s.snapshot(s.NINE)), "F-10", ".snapshot",
           offset=6),
    Damage("producer's old offset",
           lambda c: c.file(14, ".snapshot").write_bytes(s.snapshot((7, 0, 0, 5, 0, T, -1, -1), s.NINE)), "F-10",
           ".snapshot", offset=5),
    Damage("snapshot checksum", lambda c: c.patch(c.file(7, ".snapshot"), 12, b"\xff"), "F-10", ".snapshot"),
    # small files
    Damage("epoch goes back", _epoch_back, "F-9", offset=14),
    Damage("epoch checkpoint, later start",
           lambda c: (c.partition / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 14\n"), "F-9",
           "leader-epoch-checkpoint", offset=13),
    Damage("epoch checkpoint, earlier start",
           lambda c: (c.partition / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 11\n"), "F-9",
           "leader-epoch-checkpoint", offset=11),
    Damage("epoch checkpoint in disorder",
           lambda c: (c.partition / "leader-epoch-checkpoint").write_text("0\n2\n1 13\n0 0\n"), "F-9",
           "leader-epoch-checkpoint"),
    Damage("epoch checkpoint, no number",
           lambda c: (c.partition / "leader-epoch-checkpoint").write_text("0\n1\n0 x\n"), "F-9",
           "leader-epoch-checkpoint"),
    Damage("partition.metadata", lambda c: (c.partition / "partition.metadata").write_text("version: 0\n"), "F-5",
           "partition.metadata"),
    Damage("left over .swap", lambda c: c.file(0, ".log.swap").write_bytes(s.NEW[0]), "S-21", ".swap"),
    Damage("cleaner checkpoint", _checkpoint(CLEANER_CHECKPOINT, 19), "F-11", CLEANER_CHECKPOINT, offset=19),
    Damage("recovery point", _checkpoint(RECOVERY_POINTS, 19), "F-11", RECOVERY_POINTS, offset=19),
    Damage("log start", _checkpoint(LOG_STARTS, 19), "F-11", LOG_STARTS, offset=19),
    Damage("high watermark", _checkpoint(HIGH_WATERMARKS, 19), "F-11", HIGH_WATERMARKS, offset=19),
    Damage("checkpoint of too few lines", lambda c: (c.log_dir / RECOVERY_POINTS).write_text("0\n2\norders 0 1\n"),
           "F-11", RECOVERY_POINTS),
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_damage(scene: Scene, damage: Damage) -> None:
    damage.do(scene)
    found = findings(scene, scene.copy if damage.against else None)
    errors = [each for each in found if each.severity is damage.severity]
    matching = [each for each in errors if each.rule == damage.rule and each.file.endswith(damage.file)]
    assert matching, [f"{each.rule} {each.file} {each.offset}: {each.what}" for each in found]
    if damage.offset is not None:
        assert damage.offset in {each.offset for each in matching}
    if damage.against and damage.rule != "R192-1":
        rules = {each.rule for each in findings(scene, None)}
        assert damage.rule not in rules, "the finding does not need the copy"


def test_a_damaged_last_batch_of_a_producer_is_not_reported_missing(scene: Scene) -> None:
    """R192-1: it exists, but is unreadable; in an undamaged segment a missing one is still reported."""
    (path,) = (each for each in scene.partition.glob("*.log") if s.LAST_OF_7_CLEANED in each.read_bytes())
    content = bytearray(path.read_bytes())
    content[content.index(s.LAST_OF_7_CLEANED) + len(s.LAST_OF_7_CLEANED) - 1] ^= 1
    path.write_bytes(content)
    rules = {each.rule for each in findings(scene, None)}
    assert "F-2" in rules
    assert "R192-1" not in rules


def test_how_many_damages() -> None:
    assert len({damage.name for damage in DAMAGES}) == len(DAMAGES) >= 50


@pytest.mark.parametrize(
    ("name", "rule", "reported"),
    [
        (".log.cleaned", "S-21", "a broker removes it when it starts"),
        (".index.deleted", "F-12", "a broker does it after file.delete.delay.ms, or when it starts"),
        (".index", "F-6", "a broker removes it when it starts"),
    ],
)
def test_warnings(scene: Scene, name: str, rule: str, reported: str) -> None:
    """A segment's files without its log: a broker removes them at its start, so they are warnings, not errors."""
    scene.file(3, name).write_bytes(b"")
    (found,) = findings(scene, None)
    assert (found.severity, found.rule) == (Severity.WARNING, rule)
    assert found.file.endswith(name)
    assert reported in found.what


def test_many_files_that_wait_to_be_deleted(scene: Scene) -> None:
    """F-12: hundreds of them exist for a minute after a live cleaning: one line, not hundreds."""
    names = [f"{base:020d}.log.deleted" for base in range(100, 104)]
    for name in names[:3]:
        (scene.partition / name).write_bytes(b"")
    assert sorted(found.file.rpartition("/")[2] for found in findings(scene, None)) == names[:3]
    (scene.partition / names[3]).write_bytes(b"")
    (found,) = findings(scene, None)
    assert (found.severity, found.rule) == (Severity.WARNING, "F-12")
    assert found.what.startswith("4 files will be deleted, such as 0000")
    assert ": a broker does it after file.delete.delay.ms, or when it starts;" in found.what


def test_snapshot_of_a_truncated_log(scene: Scene) -> None:
    """A snapshot above the log end describes missing batches; a broker removes it."""
    later = s.snapshot((7, 0, 9, 40, 0, T, -1, -1), s.NINE)
    scene.file(41, ".snapshot").write_bytes(later)
    (found,) = findings(scene, None)
    assert (found.severity, found.rule) == (Severity.WARNING, "F-10")


@pytest.mark.parametrize(
    ("entries", "wrong"),
    [
        ((s.SEVEN, (9, 0, 1, 9, 0, T, -1, -1)), None),
        ((s.SEVEN, (9, 1, -1, -1, 0, T, -1, -1)), None),
        ((s.SEVEN,), "producer 9 is missing"),
        ((s.SEVEN, (9, 0, 4, 9, 0, T, -1, -1)), "producer 9: last sequence 4"),
        ((s.SEVEN, (9, -1, 1, 9, 0, T, -1, -1)), "producer 9: epoch -1"),
        (((7, 0, 0, 5, 0, T, -1, -1), (9, 0, 1, 9, 0, T, -1, -1)), "producer 7: last offset 5"),
    ],
)
def test_snapshot_of_an_earlier_stop(scene: Scene, entries: tuple[tuple[int, ...], ...], wrong: str | None) -> None:
    """F-10: a stop leaves one at the log end, later the middle of a segment. Its content counts."""
    scene.file(11, ".snapshot").write_bytes(s.snapshot(*entries))
    found = findings(scene, None)
    assert [each.severity for each in found] == [Severity.ERROR] * (wrong is not None)
    assert all(each.file.endswith("11.snapshot") and each.what.startswith(str(wrong)) for each in found)


def test_staging_directory(scene: Scene) -> None:
    (scene.partition / ".kstage").mkdir()
    (found,) = findings(scene, None)
    assert (found.severity, found.rule) == (Severity.WARNING, "S-22")


def test_expired_tombstone(scene: Scene) -> None:
    """R534-2: past its horizon a tombstone may be removed; without a horizon only after several cleanings."""
    scene.put(7, b"".join(s.TRANSACTIONS) + TIMELESS)
    assert {each.rule for each in findings(scene, scene.copy)} == {"R280-9"}
    # A horizon never changes, however many cleanings follow.
    assert {each.rule for each in findings(scene, scene.copy, many_cleanings=True)} == {"R280-9"}
    assert findings(scene, scene.copy, now_ms=s.HORIZON) == []
    assert findings(scene, scene.copy, now_ms=s.HORIZON, many_cleanings=True) == []
    plain = encode_batch(s.TOMBSTONE, base_offset=11)
    (scene.copy / f"{7:020d}.log").write_bytes(s.OLD[7][: -len(s.HELD)] + plain)
    assert {each.rule for each in findings(scene, scene.copy, now_ms=s.HORIZON)} == {"R280-9"}
    assert findings(scene, scene.copy, now_ms=s.HORIZON, many_cleanings=True) == []


def test_only_the_replaced_segments(scene: Scene) -> None:
    """The copy may have only the replaced segments, under the names that a swap leaves."""
    for base in (13, 14):
        (scene.copy / f"{base:020d}.log").unlink()
    for name in (".log", ".index", ".timeindex"):
        path = scene.copy / f"{7:020d}{name}"
        path.rename(path.with_name(path.name + ".deleted"))
    assert findings(scene, scene.copy) == []
    scene.put(7, b"".join(s.TRANSACTIONS) + TIMELESS)
    assert {each.rule for each in findings(scene, scene.copy)} == {"R280-9"}


def test_the_beginning_of_the_log_is_missing(scene: Scene) -> None:
    """No cleaning removes a first segment: only the checkpoint can show that its deletion was requested."""
    for file in scene.partition.glob(f"{0:020d}.*"):
        file.unlink()
    (found,) = findings(scene, scene.copy)
    assert (found.severity, found.kind.text, found.offset) == (Severity.WARNING, "not-compared", 0)
    assert "the log begins at offset 7, the copy at 0" in found.what
    write_checkpoint(scene.log_dir / LOG_STARTS, {s.NAME: 7})
    assert findings(scene, scene.copy) == []


def test_log_has_grown_since_the_copy(scene: Scene) -> None:
    """Records written after the copy are not missing from it, and may supersede records in it."""
    later = encode_batch([record("d", "6", 0)], base_offset=18, leader_epoch=1)
    scene.put(14, s.ACTIVE + later)
    assert findings(scene, scene.copy) == []
    scene.put(13, encode_batch([], base_offset=13, leader_epoch=1))
    assert {each.rule for each in findings(scene, scene.copy)} == {"R280-9"}
    assert {each.rule for each in findings(scene, scene.copy, clean_below=19)} == {"C-45"}, "a@3 and a@17"


@pytest.mark.parametrize("memory_bytes", [1, 1 << 20])
def test_memory(scene: Scene, memory_bytes: int) -> None:
    """With a minimum of memory the keys go to files, and the findings are the same."""
    _resurrected(scene)
    found = [(each.rule, each.offset) for each in findings(scene, scene.copy, memory_bytes=memory_bytes)]
    assert ("R534-6", 5) in found
    assert ("R280-9", 13) in found


def test_limit(scene: Scene) -> None:
    """Findings over the limit are counted."""
    batches = b"".join(encode_batch([record("k", "1", 0)], base_offset=offset) for offset in range(5))
    scene.put(0, batches + s.LAST_OF_7_CLEANED)
    question = VerifyRequest(now_ms=NOW, limit=2, clean_below=7)
    verdict = verify_in_surroundings(scene.partition, read_surroundings(scene.log_dir, Findings()), question)
    assert [each.rule for each in verdict.findings.kept] == ["C-45", "C-45"]
    assert (verdict.findings.errors, verdict.findings.omitted) == (4, 2)
    assert "(key 'k')" in verdict.findings.kept[0].what


def test_sealed_damage_has_a_right_checksum() -> None:
    """Damaged records with right checksums: only decoding or the copy shows them."""
    assert seal(_bad_record()) == _bad_record()
