"""``cleanerd doctor``: every check, with and without a problem; it changes nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.broker.lease import LeaseResult
from cleanerd.doctor import log_dir
from cleanerd.doctor.findings import CheckResults, exit_code
from tests.cli.clean_log_dirs import COMPACT, Answer, Shell, dirty, good, lock_holder, make, write_metadata
from tests.cli.findings import findings
from tests.support.log_dirs import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    make_log_dir,
    tree,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_a_healthy_host(root: Path, shell: Shell) -> None:
    """No problem: exit code 0, every check reports ok or a note, and nothing was changed."""
    path = make(root)
    write_metadata(path, topics={"orders": {"cleanup.policy": "compact"}})
    properties = root / "server.properties"
    properties.write_text(f"log.dirs={path}\n")
    before = tree(root, without=())
    answer = shell("doctor", path, "--json", "--set", f"cleanerd.broker.properties={properties}")
    assert answer.code == 0, answer.out
    assert answer.json["schema"] == 1
    assert answer.json["ok"] is True
    levels = {found["level"] for found in answer.json["findings"]}
    assert levels <= {"ok", "note"}, answer.out
    assert all(found.keys() == {"level", "check", "what", "where", "fix"} for found in answer.json["findings"])
    checks = {found["check"] for found in answer.json["findings"]}
    assert checks == {
        "settings", "state directory", "open files", "log directory", "checkpoints", "file system", "partition", "lock",
        "lease probe", "clean shutdown", "owner", "KRaft metadata", "server.properties", "compacted partitions",
        "free space", "leftovers", "quarantine", "mode", "broker start", "replicas",
    }  # fmt: skip
    assert tree(root, without=()) == before, "not even a lock file"


def test_table(root: Path, shell: Shell) -> None:
    """The worst is first, each problem with its fix; passed checks are counted, -v lists them."""
    path = make(root)
    (path / HIGH_WATERMARKS).unlink()
    answer = shell("doctor", path)
    assert answer.code == 4
    first, fix, *_, last = answer.out.splitlines()
    assert first.startswith("PROBLEM  checkpoints: ")
    assert fix.startswith("         -> ")
    assert re.fullmatch(r"\d+ checks passed, 1 problem(, .*)?; -v lists all", last)
    assert "\nok " not in answer.out
    assert "\nok  " in shell("doctor", path, "-v").out


def test_log_directories_of_the_settings(root: Path, shell: Shell) -> None:
    """Without an argument it checks the daemon's directories; without any, that is the problem."""
    paths = [make(root / name) for name in ("a", "b")]
    named = f"cleanerd.log.dirs={paths[0]},{paths[1]}"
    read_paths = [found["where"] for found in shell("doctor", "--json", "--set", named).json["findings"]]
    assert {str(path) for path in paths} <= set(read_paths)
    assert str(paths[1]) not in shell("doctor", paths[0], "--set", named).out, "an argument is stronger"
    answer = shell("doctor", "--json")
    assert answer.code == 3
    assert findings(answer, "log directory") == [("problem", "no log directory is named")]


def test_settings_come_first(root: Path, shell: Shell) -> None:
    """An error in the settings is exit code 3, all of them are shown, and no directory is checked with them."""
    path = make(root)
    answer = shell("doctor", path, "--json", "--set", "log.cleaner.thread=1", "--set", "log.segment.bytes=x")
    assert answer.code == 3
    assert [level for level, _ in findings(answer, "settings")] == ["problem", "problem"]
    assert findings(answer, "checkpoints") == []
    missing = shell("doctor", path, "--json", "--set", f"cleanerd.broker.properties={root / 'nowhere'}")
    assert missing.code == 3
    assert "does not exist" in findings(missing, "settings")[0][1]


def test_the_directory_for_replaced_segments(root: Path, shell: Shell) -> None:
    """S-40: without a usable directory for replaced segments the daemon cleans nothing: reported before it runs."""
    path = make(root)
    (root / "kept").mkdir()

    def ask(*places: Path) -> Answer:
        return shell("doctor", path, "--json", "--set", f"cleanerd.keep.replaced.dir={','.join(map(str, places))}")

    assert findings(shell("doctor", path, "--json"), "replaced segments") == []
    assert findings(ask(root / "nowhere", root / "kept"), "replaced segments") == [("ok", "are kept for cleanerd undo")]
    for wrong, code in ((root / "nowhere", 3), (path / "orders-0", 4)):
        answer = ask(wrong)
        assert answer.code == code
        assert [level for level, _ in findings(answer, "replaced segments")] == ["problem"]


def test_a_stray_variable_is_a_warning(root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops no command, so doctor reports it; the settings themselves are valid."""
    monkeypatch.setenv("CLEANERD_LOG_SEGMENT_BYTE", "1")
    answer = shell("doctor", make(root), "--json")
    found = findings(answer, "settings")
    assert [level for level, _ in found] == ["warning", "ok"]
    assert "did you mean log.segment.bytes?" in found[0][1]


@pytest.mark.parametrize("kind", ["missing", "file", "no broker's", "damaged"])
def test_a_path_that_is_not_a_log_directory(root: Path, shell: Shell, kind: str) -> None:
    """One bad directory is a problem of its own; the other one is still checked."""
    good_one = make(root)
    bad = root / "bad"
    if kind == "file":
        bad.write_text("")
    elif kind == "no broker's":
        bad.mkdir()
    elif kind == "damaged":
        make_log_dir(bad, {"good-0": good()})
        (bad / RECOVERY_POINTS).write_text("0\nmany\n")
    answer = shell("doctor", bad, good_one, "--json", *COMPACT)
    assert answer.code == (5 if kind == "damaged" else 3)
    assert [level for level, _ in findings(answer, "log directory")] == ["problem", "ok"]
    assert findings(answer, "compacted partitions")[0][0] == "ok"


def test_checkpoints(root: Path, shell: Shell) -> None:
    """C-86: without high watermarks, nothing is cleaned.

    S-02: without recovery points, the same with less certainty.
    """
    path = make(root)
    (path / RECOVERY_POINTS).unlink()
    assert findings(shell("doctor", path, "--json"), "checkpoints")[0][0] == "warning"
    (path / HIGH_WATERMARKS).unlink()
    answer = shell("doctor", path, "--json")
    assert (answer.code, findings(answer, "checkpoints")[0][0]) == (4, "problem")
    (fix,) = (found["fix"] for found in answer.json["findings"] if found["check"] == "checkpoints")
    assert fix.startswith("start the broker")
    with lock_holder(path):
        answer = shell("doctor", path, "--json")
    (fix,) = (found["fix"] for found in answer.json["findings"] if found["check"] == "checkpoints")
    assert fix.startswith("wait"), "the broker runs already"


def test_a_running_broker(root: Path, shell: Shell) -> None:
    """A held lock is not an error: everything else is checked, without touching the broker's files."""
    path = make(root)
    with lock_holder(path):
        answer = shell("doctor", path, "--json")
    assert answer.code == 0
    assert findings(answer, "lock") == [("note", "is held: a broker runs on this directory")]
    assert findings(answer, "lease probe") == []


def test_a_lock_that_cannot_be_tested(root: Path, shell: Shell) -> None:
    """U-33: such a lock is not used, and not reported as a broker's."""
    path = make(root)
    (path / ".lock").symlink_to("elsewhere")
    ((level, what),) = findings(shell("doctor", path, "--json"), "lock")
    assert level == "warning"
    assert what.startswith("cannot be tested (")


def test_a_broker_whose_lock_is_free(root: Path, shell: Shell) -> None:
    """S-14: the second sign of a running broker is used."""
    path = make(root)
    with (path / "orders-0" / f"{6:020d}.log").open("ab"):
        answer = shell("doctor", path, "--json")
    assert (answer.code, findings(answer, "lease probe")[0][0]) == (4, "problem")


@pytest.mark.parametrize(("probe", "code"), [("auto", 0), ("required", 4)])
def test_a_file_system_without_leases(
    root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch, probe: str, code: int
) -> None:
    """Without leases cleanerd works unless the settings require them."""
    # As of a file system that no host of the tests has.
    monkeypatch.setattr(log_dir, "probe_lease", lambda _file: LeaseResult.UNAVAILABLE)
    answer = shell("doctor", make(root), "--json", "--set", f"cleanerd.lease.probe={probe}")
    assert answer.code == code
    assert findings(answer, "lease probe")[0][0] == ("problem" if code else "warning")


def test_a_killed_broker(root: Path, shell: Shell) -> None:
    """S-27: a missing clean-shutdown file is a warning that names --unclean."""
    path = make(root)
    (path / CLEAN_SHUTDOWN).unlink()
    answer = shell("doctor", path)
    assert answer.code == 0
    assert "--unclean" in answer.out


def test_partitions_that_do_not_parse(root: Path, shell: Shell) -> None:
    """Damage is exit code 5 and names the partition; a partition that is being deleted is a note."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "good-0": good()})
    (path / "good-0" / "leader-epoch-checkpoint").write_text("0\nx\n")
    (path / "orders-1.0f5e-delete").mkdir()
    (path / "backup").mkdir()
    answer = shell("doctor", path, "--json", *COMPACT)
    assert answer.code == 5
    message = findings(answer, "partition")
    assert [level for level, _ in message] == ["problem", "note"]
    assert "being moved or deleted" in message[1][1]
    assert [level for level, _ in findings(answer, "broker start")] == ["warning"]


def test_settings_on_the_brokers_command_line(root: Path, shell: Shell) -> None:
    """U-24: they override server.properties, and no file has them; those that do not concern cleaning are not shown."""
    path = make(root)
    properties = root / "server.properties"
    properties.write_text(f"log.dirs={path}\n")
    given = ("--set", f"cleanerd.broker.properties={properties}")
    secret = ("--override", "ssl.key.password=hunter2")
    with lock_holder(path, "kafka.Kafka", "server.properties", *secret):
        assert [found[0] for found in findings(shell("doctor", path, "--json", *given), "server.properties")] == ["ok"]
    more = ("--override", f"log.dirs={path}", "--override=log.retention.ms=1")
    with lock_holder(path, "kafka.Kafka", "server.properties", *secret, *more):
        for options, reported in ((given, "clean and apply do not"), ((), "cleanerd.broker.properties is not set")):
            answer = shell("doctor", path, "--json", *options)
            first = findings(answer, "server.properties")[0]
            assert first[0] == "warning"
            assert "--override of log.dirs, log.retention.ms, which is in no file" in first[1]
            assert reported in first[1]
            assert "hunter2" not in answer.out + answer.err
    assert [found[0] for found in findings(shell("doctor", path, "--json", *given), "server.properties")] == ["ok"]


def test_metadata_and_properties(root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata that is missing, damaged, or belongs to another directory's broker."""
    path = make(root)
    assert findings(shell("doctor", path, "--json"), "KRaft metadata")[0][0] == "warning"
    assert findings(shell("doctor", path, "--json"), "compacted partitions")[0] == ("note", "none found")
    properties = root / "server.properties"
    properties.write_text("log.dirs=/elsewhere/logs\n")
    answer = shell("doctor", path, "--json", "--set", f"cleanerd.broker.properties={properties}")
    assert findings(answer, "server.properties")[0][0] == "warning"
    monkeypatch.chdir(path.parent)
    for named, level, reported in (
        (
            path.name,
            "warning",
            f"its log.dirs name {path.name}, relative to the directory that the broker is started in",
        ),
        (f"other,{path}", "ok", "it is read for log and cleaner keys"),
    ):
        properties.write_text(f"log.dirs={named}\n")
        answer = shell("doctor", path, "--json", "--set", f"cleanerd.broker.properties={properties}")
        assert findings(answer, "server.properties")[0][0] == level
        assert findings(answer, "server.properties")[0][1].startswith(reported)
    directory = write_metadata(path, topics={"orders": {"cleanup.policy": "compact"}})
    log = directory / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    answer = shell("doctor", path, "--json")
    assert (answer.code, findings(answer, "configuration")[0][0]) == (5, "problem")


@pytest.mark.parametrize(
    ("names", "level", "text"),
    [
        (["00000000000000000000.log.cleaned"], "warning", "by another program"),
        (["00000000000000000000.log.swap", ".kstage/x"], "warning", "by cleanerd was interrupted"),
        ([".kstage/x"], "note", "a staged cleaning"),
        (["00000000000000000000.log.deleted"], "note", "1 file to be deleted (.deleted)"),
        ([], "ok", "none"),
    ],
)
def test_leftovers(root: Path, shell: Shell, names: list[str], level: str, text: str) -> None:
    """S-21, S-28: their owner decides what removes them."""
    path = make(root)
    for name in names:
        (path / "orders-0" / name).parent.mkdir(exist_ok=True)
        (path / "orders-0" / name).write_bytes(b"")
    answer = shell("doctor", path, "--json")
    assert answer.code == 0
    (found,) = findings(answer, "leftovers")
    assert found[0] == level
    assert text in found[1]
    if "swap" in "".join(names) or "cleaned" in "".join(names):
        with lock_holder(path):
            assert findings(shell("doctor", path, "--json"), "leftovers")[0][0] == "note", "the broker's own cleaner"


def test_quarantine(root: Path, shell: Shell) -> None:
    """The reason of the last failure is shown; a damaged state file is a warning and stays where it is."""
    path = make(root)
    segment = path / "orders-0" / f"{2:020d}.log"
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    assert shell.clean(path).code == 5
    answer = shell("doctor", path, "--json")
    ((level, reason),) = findings(answer, "quarantine")
    assert level == "warning"
    assert f"{2:020d}.log" in reason
    assert reason.endswith("(batch at offset 3)"), "the way out is the fix"
    (fix,) = [each["fix"] for each in answer.json["findings"] if each["check"] == "quarantine"]
    assert fix.startswith("copy the partition from a replica without the damage; if every replica has it, ")
    assert fix.endswith("; clean it again, or cleanerd retry orders-0; the daemon tries again by itself")
    (state,) = (root / "state" / "partitions").rglob("*.json")
    segment.rename(segment.with_name("aside"))
    segment.write_bytes(data)
    ((level, reason),) = findings(shell("doctor", path, "--json"), "quarantine")
    assert level == "note"
    assert f"{2:020d}.log" in reason
    assert reason.endswith("but that segment was replaced or deleted since")
    assert "was replaced or deleted since" in shell("explain", "orders-0", path, *COMPACT).out
    segment.with_name("aside").rename(segment)
    assert [level for level, _ in findings(shell("doctor", path, "--json"), "quarantine")] == ["warning"]
    state.write_text("{")
    answer = shell("doctor", path, "--json")
    assert "damaged" in next(what for level, what in findings(answer, "state directory") if level == "warning")
    assert state.read_text() == "{"


def test_the_state_directory(root: Path, shell: Shell) -> None:
    """A missing one is fine, a file in its place is an invalid setting: nothing is checked with it."""
    path = make(root)
    assert findings(shell("doctor", path, "--json"), "state directory")[0][0] == "note"
    (root / "state").mkdir()
    assert findings(shell("doctor", path, "--json"), "state directory")[0][0] == "ok"
    (root / "state").rmdir()
    (root / "state").write_text("")
    answer = shell("doctor", path, "--json")
    assert (answer.code, findings(answer, "state directory")) == (3, [])
    assert [level for level, _ in findings(answer, "settings")] == ["problem"]
    assert findings(answer, "log directory") == [("note", "not checked: correct the settings first")]


def test_the_worst_problem_decides() -> None:
    """3, then 4, 5, 1; warnings are not failures."""

    def code(*codes: int) -> int:
        found = CheckResults()
        found.warning("a", "b", "c", "d")
        for value in codes:
            found.problem("a", "b", "c", "d", exit_code=value)
        return exit_code(found.all)

    cases: dict[tuple[int, ...], Any] = {(): 0, (1,): 1, (1, 5): 5, (5, 4): 4, (1, 4, 3, 5): 3}
    assert {codes: code(*codes) for codes in cases} == cases


def test_delegation(root: Path, shell: Shell) -> None:
    """U-8: an undelegated topic with a non-default strategy is a problem; a surprise is a warning (R280-13)."""
    path = make(root)
    by_time = ("--set", "topics.orders.compaction.strategy=timestamp")
    assumed = ("--set", "cleanerd.delegation=assumed")
    answer = shell("doctor", path, "--json", *COMPACT, *by_time)
    assert answer.code == 4
    ((level, what),) = findings(answer, "delegation")
    assert (level, "is not known" in what) == ("problem", True)
    assert findings(shell("doctor", path, "--json", *COMPACT, *by_time, *assumed), "delegation")[0][0] == "warning"
    topic = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": str(2**63 - 1)}
    write_metadata(path, topics={"orders": topic})
    answer = shell("doctor", path, "--json", *by_time)
    assert answer.code == 0
    assert findings(answer, "delegation") == [("ok", "Kafka's cleaner skips the topic")]
    ((level, what),) = findings(answer, "strategy")
    assert (level, "brings its key back" in what) == ("warning", True)
    assert not any("brings its key back" in what for _, what in findings(answer, "settings")), "it is said once"
    write_metadata(path, topics={"orders": {**topic, "segment.ms": "1000"}})
    answer = shell("doctor", path, "--json", *by_time)
    assert not findings(answer, "strategy")
    assert not any("brings its key back" in what for _, what in findings(answer, "settings")), "its segments roll soon"


def test_kafkas_cleaner_that_is_off(root: Path, shell: Shell) -> None:
    """OP-13: "why is it not compacted?" has a cause outside of cleanerd; doctor, explain and plan did not report it."""
    path = make(root)
    write_metadata(path, topics={"orders": {"cleanup.policy": "compact"}})
    properties = root / "server.properties"
    given = ("--set", f"cleanerd.broker.properties={properties}")
    for value, is_off in ((" False ", True), ("true", False)):
        properties.write_text(f"log.dirs={path}\nlog.cleaner.enable={value}\n")
        found = findings(shell("doctor", path, "--json", *given), "Kafka's cleaner")
        assert [level for level, *_ in found] == (["warning"] if is_off else [])
        for answer in (shell("explain", "orders-0", path, *given), shell("plan", path, *given)):
            assert ("Kafka's own cleaner is off (log.cleaner.enable is false)" in answer.out + answer.err) is is_off
