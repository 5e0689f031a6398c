"""``spark audit --key``: every copy of a key below the directories, byte for byte, or the proof that there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.spark.erasure import search_records
from cleanerd.verify.audit import Term
from cleanerd.verify.records import hashes_of
from cleanerd.verify.rules import KAFKAS_RULES
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch, encode_marker

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cleanerd.spark.erasure import Erasure

PLAN = "20251121T063143-00c0ffee"
UUID = "b8cf5d2dcf0b4d2b9ad8a2c6a1f7c5d3"
WANTED, OTHER = b"alice", b"bob"


def batch(at: int, *keys: bytes, codec: int = 0, **fields: object) -> bytes:
    records = [Record(key, b"value of " + key) for key in keys]
    return encode_batch(records, base_offset=at, codec=codec, **fields)  # type: ignore[arg-type]  # by name


ABORTED = {"transactional": True, "producer_id": 3, "producer_epoch": 0, "base_sequence": 0}
LIVE = (
    batch(0, OTHER, WANTED) + batch(2, WANTED, **ABORTED) + encode_marker(3, commit=False, producer_id=3, timestamp=0)
)
FILES = {
    "orders-0/00000000000000000000.log": ("live", LIVE, [(0, 1, True), (len(batch(0, OTHER, WANTED)), 0, False)]),
    "orders-0/00000000000000000009.log.deleted": ("deleted", batch(9, OTHER, OTHER, WANTED, codec=4), [(0, 2, False)]),
    "orders-0/00000000000000000019.log.cleaned": ("cleaned", batch(19, WANTED), [(0, 0, False)]),
    "orders-0/00000000000000000029.log.swap": ("swap", batch(29, WANTED), [(0, 0, False)]),
    f"orders-0/.kstage/{PLAN}/00000000000000000039.log": ("staged", batch(39, WANTED), [(0, 0, False)]),
    f"orders-0/.kstage/spark-{PLAN}/{UUID}/00000000000000000059.log": ("staged", batch(59, WANTED), [(0, 0, False)]),
    f"orders-1.{UUID}-delete/00000000000000000000.log": ("-delete", batch(0, WANTED), [(0, 0, False)]),
    f"kept/{PLAN}/orders-0/00000000000000000049.log": ("kept", batch(49, WANTED), [(0, 0, False)]),
    "clicks-7/00000000000000000000.log": ("live", batch(0, OTHER), []),
}
"""State, bytes, and the key's place: position of the batch, number of the record, visible."""


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("erasure")
    make_log_dir(root / "logs", {"orders-0": Partition({0: b""}, indexes=False)})
    for name, (_, data, _) in FILES.items():
        path = root / name if name.startswith("kept/") else root / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root / "logs"


def search(spark: SparkSession, *directories: Path, keys: tuple[bytes, ...] = (WANTED,), limit: int = 100) -> Erasure:
    terms = [Term("key", key) for key in keys]
    return search_records(spark, directories, terms, lambda _topic: KAFKAS_RULES, limit=limit)


def test_everywhere(spark: SparkSession, log_dir: Path) -> None:
    """Live, replaced, waiting, staged, to be deleted, kept: each place once, with its byte position."""
    kept = log_dir.parent / "kept"
    found = search(spark, log_dir, kept, keys=(WANTED, b"nobody"))
    expected = {
        (str((log_dir.parent if name.startswith("kept/") else log_dir) / name), state, *place)
        for name, (state, _, places) in FILES.items()
        for place in places
    }
    assert {(e.file, e.state, e.position, e.record, e.visible) for e in found.occurrences} == expected
    assert {each.key for each in found.occurrences} == {WANTED}
    assert (found.found, found.files, found.unread) == (9, 9, ())
    assert found.size_bytes == sum(len(data) for _, data, _ in FILES.values())


def test_few_are_listed_and_all_are_counted(spark: SparkSession, log_dir: Path) -> None:
    found = search(spark, log_dir, limit=1)
    assert (found.found, len(found.occurrences)) == (8, 7)


def test_a_term_whose_matches_come_late_is_shown(spark: SparkSession, tmp_path: Path) -> None:
    """OP-16: the first matches of every term are shown, so that no found term looks absent."""
    data = batch(0, OTHER, OTHER, OTHER, WANTED)
    make_log_dir(tmp_path / "logs", {"orders-0": Partition({0: data, 4: b""}, indexes=False)})
    terms = [Term("key_prefix", b"bo"), Term("key", WANTED), Term("value_contains", b"of alice")]
    found = search_records(spark, [tmp_path / "logs"], terms, lambda _topic: KAFKAS_RULES, limit=1)
    assert [(each.offset, each.terms) for each in found.occurrences] == [(0, (0,)), (3, (1, 2))]
    assert found.found == 4


def test_unreadable_bytes(spark: SparkSession, tmp_path: Path) -> None:
    """They prove nothing: the key may be in there."""
    data = batch(0, OTHER) + batch(1, OTHER)
    make_log_dir(tmp_path / "logs", {"orders-0": Partition({0: data, 2: b""}, indexes=False)})
    path = tmp_path / "logs/orders-0/00000000000000000000.log"
    path.write_bytes(data[:-5])
    found = search(spark, tmp_path / "logs")
    (unread,) = found.unread
    assert found.found == 0
    assert unread.startswith(f"{path} at byte {len(data) // 2}")


def test_the_key_hashes_of_a_staged_cleaning(tmp_path: Path) -> None:
    """U-47: a guessed key can be recognised by its hash."""
    make_log_dir(tmp_path / "logs", {"orders-0": Partition({0: b""}, indexes=False)})
    plan = tmp_path / "logs" / "orders-0" / ".kstage" / PLAN
    plan.mkdir(parents=True)
    (plan / "removed_tombstones.keys").write_bytes(bytes(16) + hashes_of([WANTED], bytes(16)).astype("<u8").tobytes())
    for key, unread in ((WANTED, 1), (OTHER, 0)):
        found = search_records(None, [tmp_path / "logs"], [Term("key", key)], lambda _topic: KAFKAS_RULES, limit=5)
        assert (found.found, len(found.unread)) == (0, unread)
