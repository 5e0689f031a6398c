"""``cleanerd plan``: the bounds, the ratio, what a cleaning would do or why there is none; it writes nothing."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from cleanerd.cli import plan as plan_module
from cleanerd.cli.options import FEW_PARTITIONS
from cleanerd.humanize import human_bytes
from cleanerd_lab.bench.generate import LogShape, make_log
from tests.cli.clean_log_dirs import COMPACT, GOOD, NOW, Shell, batch, dirty, good, keys, lock_holder, make
from tests.support.log_dirs import CLEANER_CHECKPOINT, HIGH_WATERMARKS, Partition, make_log_dir, tree

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.broker.partition_snapshot import PartitionSnapshot
    from cleanerd.cleaner.resources import Resources


def test_json(root: Path, shell: Shell) -> None:
    """Dirty ratio, bounds, cleanable bytes, and the result of a cleaning; schema 1."""
    path = make(root, cleaner_offset=2)
    sizes = [(path / "orders-0" / f"{base:020d}.log").stat().st_size for base in (0, 2, 4, 6)]
    before = tree(root, without=())
    answer = shell("plan", path, "--json", "--quiet", *COMPACT)
    assert (answer.code, answer.err) == (0, "")
    assert answer.json["schema"] == 1
    (entry,) = answer.json["partitions"]
    expected = {
        "topic": "orders",
        "partition": 0,
        "log_dir": str(path),
        "action": "clean",
        "reason": "",
        "strategy": "offset",
        "first_dirty_offset": 2,
        "first_dirty_origin": "cleaner-offset-checkpoint",
        "end_offset": 6,
        "limited_by": "the active segment",
        "limits": {"the active segment": 6, "the high watermark": 7, "the recovery point": 7},
        "log_start_offset": 0,
        "high_watermark": 7,
        "segments": 4,
        "bytes": sum(sizes),
        "clean_bytes": sizes[0],
        "cleanable_bytes": sizes[1] + sizes[2],
        "overdue_ms": 0,
        "notes": [],
    }
    assert {name: entry[name] for name in expected} == expected
    assert entry["dirty_ratio"] == pytest.approx((sizes[1] + sizes[2]) / sum(sizes[:3]))
    assert entry["origins"]["cleanup.policy"] == "--set"
    assert "exact" not in entry
    assert tree(root, without=()) == before, "not even a lock file"


def test_table(root: Path, shell: Shell) -> None:
    """One row per partition with the numbers, and the result of a cleaning in words."""
    path = make_log_dir(
        root / "logs", {"orders-0": dirty(), "good-0": good(), "good-1": Partition({0: batch(0, ("a", "1"))})}
    )
    answer = shell("plan", path, "--quiet", *COMPACT, *GOOD)
    total, _, *table = answer.out.splitlines()
    assert total.startswith("3 partitions, ")
    rows = {line.split()[0]: line for line in table}
    assert rows.keys() == {"partition", "orders-0", "good-0", "good-1"}
    assert "100.0 %" in rows["orders-0"]
    assert "will be cleaned" in rows["orders-0"]
    assert "nothing to clean" in rows["good-1"], "C-16"
    assert shell("plan", path, "--quiet").out == "No partition is known to be compacted.\n"


def test_the_expected_saving_of_a_small_log_is_exact(root: Path, shell: Shell) -> None:
    """U-41: of a small log the same as with --exact, also if it is not to be cleaned now; nothing when turned off."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "orders-1": dirty()})
    seldom = [*COMPACT, "--set", "topics.orders.min.cleanable.dirty.ratio=1"]
    (exact, _) = shell("plan", path, "--exact", "--json", "--quiet", *COMPACT).json["partitions"]
    saved = exact["exact"]["bytes_before"] - exact["exact"]["bytes_after"]
    assert exact["reclaimable"] == {"bytes": saved, "low": saved, "high": saved, "method": "exact"}
    for settings in (COMPACT, seldom):
        answer = shell("plan", path, "--json", "--quiet", *settings)
        assert [each["reclaimable"] for each in answer.json["partitions"]] == [exact["reclaimable"]] * 2
    rows = shell("plan", path, "--quiet", *COMPACT).out.splitlines()
    assert rows[0].endswith(f"would save {human_bytes(2 * saved)}"), rows[0]
    assert "would save" in rows[2]
    assert f" {human_bytes(saved)} " in rows[3]
    off = [*COMPACT, "--set", "cleanerd.estimate.bytes=0"]
    assert "would save" not in shell("plan", path, "--quiet", *off).out
    answer = shell("plan", path, "--json", "--quiet", *off)
    assert [each["reclaimable"] for each in answer.json["partitions"]] == [None] * 2


def test_the_first_line_counts_what_will_be_cleaned(root: Path, shell: Shell) -> None:
    """Not what only --force cleans: that is added behind it."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "rare-0": dirty(), "rare-1": dirty()})
    words = (
        *COMPACT,
        "--set",
        "topics.rare.cleanup.policy=compact",
        "--set",
        "topics.rare.min.cleanable.dirty.ratio=1",
    )
    orders, *rare = shell("plan", path, "--json", "--quiet", *words).json["partitions"]
    (first, *_) = shell("plan", path, "--quiet", *words).out.splitlines()
    saves, more = orders["reclaimable"]["bytes"], sum(each["reclaimable"]["bytes"] for each in rare)
    assert first.split(": ")[1] == (
        f"1 to clean, {human_bytes(orders['cleanable_bytes'])} cleanable, would save {human_bytes(saves)}, "
        f"{human_bytes(more)} more with --force"
    )
    (first, *_) = shell("plan", path, "--quiet", "--partition", "rare", *words).out.splitlines()
    assert first.split(": ")[1] == f"0 to clean, {human_bytes(more)} more with --force"


def test_a_large_log_is_sampled(root: Path, shell: Shell) -> None:
    """U-41: with its error, at a width of 80."""
    make_log(root / "logs", LogShape("", "", 128, 16, 0.9), unpacked_bytes=1 << 20, segment_bytes=1 << 18)
    options = ["--set", "topics.bench.cleanup.policy=compact", "--set", "cleanerd.estimate.bytes=384KiB"]
    (entry,) = shell("plan", root / "logs", "--json", "--quiet", *options).json["partitions"]
    found = entry["reclaimable"]
    assert found["method"] == "sample"
    (exact,) = shell("plan", root / "logs", "--exact", "--json", "--quiet", *options).json["partitions"]
    assert found["low"] <= exact["reclaimable"]["bytes"] <= found["high"]
    assert " ± " in shell("plan", root / "logs", "--quiet", *options).out


def test_a_partition_that_vanishes_ends_no_plan(root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """OP-10: its topic is deleted between two readings: that row reports it, the others are complete."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "orders-1": dirty()})
    real = plan_module.refuse_obstacles

    def gone(reading: PartitionSnapshot, resources: Resources) -> None:
        if reading.log.name.partition == 0:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(reading.log.path))
        real(reading, resources)

    monkeypatch.setattr(plan_module, "refuse_obstacles", gone)  # at this very moment
    answer = shell("plan", path, "--json", "--quiet", *COMPACT)
    assert answer.code == 6
    assert [row["action"] for row in answer.json["partitions"]] == ["error", "clean"]


def test_missing_metadata_is_reported(root: Path, shell: Shell) -> None:
    """U-24: without KRaft metadata the topics are unknown; an empty plan must not look like a clean log."""
    path = make(root)
    answer = shell("plan", path)
    assert (answer.code, answer.out) == (0, "No partition is known to be compacted.\n")
    (line,) = [line for line in answer.err.splitlines() if line.startswith(f"{path}: ")]
    assert "no KRaft metadata log found" in line
    assert "cleanerd.metadata.log.dir" in line
    assert "cleanerd.broker.properties" in answer.err


def test_after_is_about_the_same_files_as_size(root: Path, shell: Shell) -> None:
    """``--exact``: a log without removable records keeps its size, active segment included."""
    path = make_log_dir(
        root / "logs", {"orders-0": Partition({0: batch(0, ("a", "1" * 3000)), 1: batch(1, ("b", "1" * 90_000))})}
    )
    answer = shell("plan", path, "--exact", "--force", "--quiet", *COMPACT)
    row = answer.out.splitlines()[3]
    assert "will be cleaned" in row
    assert row.count("91.0 KiB") == 2, row


def test_exact_equals_clean(root: Path, shell: Shell) -> None:
    """--exact: index and decide; the records are those that a cleaning retains, the bytes an estimate."""
    path = make(root)
    before = tree(root, without=())
    active_bytes = (path / "orders-0" / f"{6:020d}.log").stat().st_size
    (planned,) = shell("plan", path, "--exact", "--json", "--force", "--now-ms", NOW, *COMPACT).json["partitions"]
    assert tree(root, without=()) == before
    (cleaned,) = shell.clean(path, "--json").json["partitions"]
    assert planned["exact"]["records"] == cleaned["records_read"]
    assert planned["exact"]["kept"] == cleaned["records_kept"]
    assert planned["exact"]["bytes_before"] == cleaned["bytes_before"] == planned["bytes"] - active_bytes
    assert planned["exact"]["groups"] == 1
    assert abs(planned["exact"]["bytes_after"] - cleaned["bytes_after"]) < 200
    assert planned["exact"]["peak_bytes"] >= planned["exact"]["bytes_after"] > 0


def test_the_room_that_is_needed_is_distinguished_from_the_reserve(root: Path, shell: Shell) -> None:
    """An operator who reads 25 GiB has to know that the partition needs a few KiB of it; ``--json`` has the sum."""
    path = make(root)
    shell.disk_reserve = "1MiB"
    options = ("--force", "--now-ms", NOW, *COMPACT)
    (planned,) = shell("plan", path, "--exact", "--json", *options).json["partitions"]
    needed = human_bytes(planned["exact"]["peak_bytes"] - 2**20)
    reported = shell("plan", path, "--exact", *options).err
    assert f"needs {needed} free for clean, {needed} for stage, plus the reserve of 1.0 MiB" in reported


def test_exact_ends_with_a_total(root: Path, shell: Shell) -> None:
    """The size after cleaning all: an uncleaned partition keeps its size, a broken one is reported."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "orders-1": dirty(cleaner_offset=6), "orders-2": dirty()})
    broken = path / "orders-2" / f"{2:020d}.log"
    broken.write_bytes(broken.read_bytes()[:-1] + b"?")
    answer = shell("plan", path, "--exact", "--json", "--quiet", *COMPACT)
    first, second, _ = answer.json["partitions"]
    saved = first["exact"]["bytes_before"] - first["exact"]["bytes_after"]
    assert saved > 0
    size = first["bytes"] + second["bytes"]
    assert answer.json["total"] == {
        "partitions": 2, "bytes_before": size, "bytes_after": size - saved, "unknown": 1,
    }  # fmt: skip
    text = shell("plan", path, "--exact", "--quiet", *COMPACT).out
    assert text.splitlines()[0] == (
        f"2 partitions: {size} -> {size - saved} B (-{round(100 * saved / size)} %); 1 partition could not be computed"
    )
    (row,) = [line for line in text.splitlines() if line.startswith("orders-1")]
    assert row.count(f"{second['bytes']} B") == 2, "every row shows the size after it"
    assert "total" not in shell("plan", path, "--json", "--quiet", *COMPACT).json


def test_after_equals_after_of_clean(root: Path, shell: Shell) -> None:
    """Both are of the whole log, active segment included, so that the figures of the two tables agree."""
    path = make(root)
    planned = shell("plan", path, "--exact", "--force", "--quiet", *COMPACT).out.splitlines()[3].split("  ")
    cleaned = shell.clean(path).out.splitlines()[1].split("  ")
    sizes = [cell.strip() for cell in cleaned if cell.strip().endswith(" B")]
    size = sum(segment.stat().st_size for segment in (path / "orders-0").glob("*.log"))
    assert sizes[1] == f"{size} B"
    assert sizes[0] in [cell.strip() for cell in planned]


@pytest.mark.parametrize(
    ("facts", "options", "message"),
    [
        pytest.param({"cleaner_offset": 6}, (), "dirty from offset 6, cleanable up to 6", id="all clean"),
        pytest.param({"high_watermark": 1}, (), "set by the high watermark", id="C-05: high watermark"),
        pytest.param({"recovery_point": 1}, (), "set by the recovery point", id="S-02: recovery point"),
        pytest.param(
            {"cleaner_offset": 4}, ("--set", "topics.orders.min.cleanable.dirty.ratio=0.9"), "0.9", id="C-11: ratio"
        ),
        pytest.param(
            {},
            ("--set", "topics.orders.min.compaction.lag.ms=1h", "--now-ms", str(NOW)),
            "min.compaction.lag.ms",
            id="C-05: too young",
        ),
    ],
)
def test_the_first_rule_against_a_cleaning_is_named(
    root: Path, shell: Shell, facts: dict[str, int], options: tuple[str, ...], message: str
) -> None:
    """The first rule that prevents a cleaning, with its numbers."""
    path = make(root, **facts)
    (entry,) = shell("plan", path, "--json", "--quiet", *COMPACT, *options).json["partitions"]
    assert entry["action"] == "none"
    assert message in entry["reason"]
    answer = shell("plan", path, "--json", "--quiet", "--exit-code", *COMPACT, *options)
    assert answer.code == 0


def test_overdue(root: Path, shell: Shell) -> None:
    """C-11: max.compaction.lag.ms makes it eligible whatever the ratio."""
    path = make(root, cleaner_offset=4)
    lag = ("--set", "topics.orders.max.compaction.lag.ms=500", "--set", "topics.orders.min.cleanable.dirty.ratio=1")
    (entry,) = shell("plan", path, "--json", "--now-ms", NOW, *COMPACT, *lag).json["partitions"]
    assert (entry["action"], entry["overdue_ms"]) == ("clean", 500)


def test_exit_code(root: Path, shell: Shell) -> None:
    """10 when there is work to do, and only with the option for it."""
    path = make(root)
    assert shell("plan", path, *COMPACT).code == 0
    assert shell("plan", path, "--exit-code", *COMPACT).code == 10
    shell.clean(path)
    assert shell("plan", path, "--exit-code", *COMPACT).code == 0


def test_no_high_watermark(root: Path, shell: Shell) -> None:
    """C-86: without a checkpoint nothing is cleanable, and the row says so."""
    path = make(root)
    (path / HIGH_WATERMARKS).unlink()
    (entry,) = shell("plan", path, "--json", *COMPACT).json["partitions"]
    assert entry["action"] == "none"
    assert HIGH_WATERMARKS in entry["reason"]


def test_repaired_checkpoint(root: Path, shell: Shell) -> None:
    """C-03: reported, and not repaired by a command that only reads."""
    path = make(root, cleaner_offset=99)
    (entry,) = shell("plan", path, "--json", *COMPACT).json["partitions"]
    assert (entry["first_dirty_offset"], entry["first_dirty_origin"]) == (0, "log start offset")
    assert any("99" in note for note in entry["notes"])
    assert "99" in (path / CLEANER_CHECKPOINT).read_text()


def test_beside_a_running_broker(root: Path, shell: Shell) -> None:
    """``plan`` works while the lock is held; the missing clean-shutdown file is no reason then."""
    path = make_log_dir(root / "logs", {"orders-0": dirty()}, clean_shutdown=False)
    (entry,) = shell("plan", path, "--json", *COMPACT).json["partitions"]
    assert "not stopped cleanly" in entry["reason"]
    with lock_holder(path):
        answer = shell("plan", path, "--json", *COMPACT)
        assert (answer.code, answer.json["partitions"][0]["action"]) == (0, "clean")
        assert "a broker runs on it" in answer.err
        # The broker is in the middle of a write, so its incomplete batch is not damage.
        with (path / "orders-0" / f"{6:020d}.log").open("ab") as active:
            active.write(batch(7, ("y", "1"))[:30])
        answer = shell("plan", path, "--json", "--exact", *COMPACT)
        assert (answer.code, answer.json["partitions"][0]["action"]) == (0, "clean")


def test_unfinished_replacement(root: Path, shell: Shell) -> None:
    """S-21: an interrupted swap has to be completed first; the figures would be of both sides."""
    path = make(root)
    (path / "orders-0" / f"{0:020d}.log.swap").write_bytes(b"x")
    (entry,) = shell("plan", path, "--json", *COMPACT).json["partitions"]
    assert entry["action"] == "none"
    assert f"{0:020d}.log.swap" in entry["reason"]


def test_bad_partition(root: Path, shell: Shell) -> None:
    """An unreadable one is an error row; the others are planned (6), alone it has its own code."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "good-0": good()})
    active = path / "orders-0" / f"{6:020d}.log"
    active.write_bytes(active.read_bytes()[:-1])
    answer = shell("plan", path, "--json", *COMPACT, *GOOD)
    entries = {entry["topic"]: entry for entry in answer.json["partitions"]}
    assert answer.code == 6
    assert (entries["orders"]["action"], entries["good"]["action"]) == ("error", "clean")
    assert f"{active} at byte 0" in entries["orders"]["reason"]
    assert shell("plan", path, "--json", *COMPACT).code == 5
    assert "error: " in shell("plan", path, *COMPACT).out


def test_bad_segment_with_exact(root: Path, shell: Shell) -> None:
    """--exact reads the segments, so it finds their damage."""
    path = make(root)
    log = path / "orders-0" / f"{2:020d}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    assert shell("plan", path, "--json", *COMPACT).code == 0
    answer = shell("plan", path, "--json", "--exact", *COMPACT)
    assert answer.code == 5
    assert str(log) in answer.json["partitions"][0]["reason"]


def test_several_directories(root: Path, shell: Shell) -> None:
    """All in one table; a wrong name is an error that shows what is allowed."""
    first = make_log_dir(root / "first", {"orders-0": dirty()})
    second = make_log_dir(root / "second", {"orders-1": dirty()})
    answer = shell("plan", first, second, "--json", *COMPACT)
    assert [entry["log_dir"] for entry in answer.json["partitions"]] == [str(first), str(second)]
    answer = shell("plan", first / "orders-0", *COMPACT)
    assert (answer.code, len(answer.errors)) == (3, 1)
    assert "not a partition inside it" in answer.err


def test_partition_option(root: Path, shell: Shell) -> None:
    """--partition, repeatable."""
    path = make_log_dir(root / "logs", {f"orders-{number}": dirty() for number in range(3)})
    answer = shell("plan", path, "--json", "--partition", "orders-2", "--partition", "orders-0", *COMPACT)
    assert [entry["partition"] for entry in answer.json["partitions"]] == [0, 2]
    answer = shell("plan", path, "--partition", "orders-7", *COMPACT)
    assert (answer.code, "no such partition" in answer.err) == (3, True)


def test_keys_are_untouched(root: Path, shell: Shell) -> None:
    """With any option, ``plan`` changes no record."""
    path = make(root)
    before = keys(path / "orders-0")
    for options in (("--exact",), ("--from-start",), ("--cleanable-to", "3"), ("--first-dirty", "1"), ("--unclean",)):
        assert shell("plan", path, "--force", *options, *COMPACT).code == 0
    assert keys(path / "orders-0") == before


def test_linked_partition(root: Path, shell: Shell) -> None:
    """Not followed, and reported: the broker would load it."""
    path = make(root)
    (path / "orders-7").symlink_to(path / "orders-0", target_is_directory=True)
    for answer in (shell("plan", path), shell.clean(path)):
        assert answer.code == 0
        assert "orders-7: is a symbolic link and not followed" in answer.err
    assert "orders-7" not in answer.out
    named = shell("plan", path, "--partition", "orders-7")
    assert named.code == 3
    assert "no such partition" in named.err
    assert "orders-7 is a symbolic link, and none is followed" in " ".join(named.err.split())


def test_many_partitions_are_shown_by_topic(root: Path, shell: Shell) -> None:
    """OP-22: the total, then topics by saving; those with nothing to clean in one line; partitions on request."""
    young = Partition({0: batch(0, ("a", "1"))})
    partitions = {"good-0": good(), **{f"orders-{number}": dirty() for number in range(FEW_PARTITIONS)}}
    path = make_log_dir(root / "logs", {**partitions, "idle-0": young, "idle-1": young})
    words = (path, "--quiet", *COMPACT, *GOOD, "--set", "topics.idle.cleanup.policy=compact")
    total, _, titles, orders, kept, idle = shell("plan", *words).out.splitlines()
    assert total.startswith(f"{FEW_PARTITIONS + 3} partitions, ")
    assert f": {FEW_PARTITIONS + 1} to clean, " in total
    assert titles.split()[:2] == ["topic", "partitions"]
    assert orders.split()[:2] == ["orders", str(FEW_PARTITIONS)]
    assert orders.endswith(f"{FEW_PARTITIONS} of {FEW_PARTITIONS} will be cleaned")
    assert kept.split()[:2] == ["good", "1"]
    assert idle == "2 partitions not cleaned now: 2 by the active segment; --by partition shows each"
    *_, row, rest, again = shell("plan", *words, "--top", 1).out.splitlines()
    assert row.startswith("orders ")
    assert (rest, again) == ("and 1 more topic; --top sets how many are shown", idle)
    rows = shell("plan", *words, "--by", "partition").out.splitlines()[3:]
    assert [line.split()[0] for line in rows[:1] + rows[-3:]] == ["orders-0", "good-0", "idle-0", "idle-1"]
    assert shell("plan", path, "--quiet", *GOOD).out.splitlines()[2].startswith("partition ")
