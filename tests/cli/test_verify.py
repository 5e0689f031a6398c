"""``cleanerd verify``: its arguments, its output, its exit codes."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cli import verify as verify_module
from cleanerd.cli.clean_end import CleanEnds
from cleanerd.config.load import load_settings
from cleanerd.errors import system_error
from cleanerd.resolution.selection import PartitionSelection
from cleanerd.verify.log_dir import verify_in_surroundings
from cleanerd.verify.partition import VerifyRequest
from tests.cleaner.strategy_cases import batches, rec
from tests.cli.clean_log_dirs import COMPACT, Shell, dirty, make, write_metadata
from tests.support.format_bytes import config, metadata_batch
from tests.support.log_dirs import CLEANER_CHECKPOINT, Partition, make_log_dir, read_checkpoint
from tests.support.logs import encode_batch
from tests.verify import cleaned_partition as s
from tests.verify.cleaned_partition import NOW, Scene, make_scene

if TYPE_CHECKING:
    from cleanerd.errors import CleanerdError


@pytest.fixture
def scene(root: Path) -> Scene:
    return make_scene(root)


def _verify(shell: Shell, *arguments: object) -> tuple[int, list[dict[str, object]]]:
    answer = shell("verify", *arguments, "--now-ms", NOW, "--json", "--quiet")
    assert answer.err == ""
    document = answer.json
    assert document["schema"] == 1
    found = [finding for verified in document["verified"] for finding in verified["findings"]]
    assert document["errors"] == sum(finding["severity"] == "error" for finding in found)
    return answer.code, found


def test_right_log(scene: Scene, shell: Shell) -> None:
    """Exit code 0 and a count of the records read, for all three kinds of argument."""
    for path in (scene.log_dir, scene.partition, scene.file(0), scene.file(0, ".index"), scene.file(7, ".txnindex")):
        assert _verify(shell, path) == (0, [])
    answer = shell("verify", scene.log_dir, "--now-ms", NOW)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines()[-1].startswith("4 segments, 10 batches, 12 records, ")
    assert answer.out.splitlines()[-1].endswith(": 0 errors, 0 warnings")


def test_small_files(scene: Scene, shell: Shell) -> None:
    """Snapshots, checkpoints and meta.properties on their own."""
    small = [
        scene.file(7, ".snapshot"),
        scene.partition / "leader-epoch-checkpoint",
        scene.log_dir / CLEANER_CHECKPOINT,
        scene.log_dir / "meta.properties",
    ]
    assert _verify(shell, *small) == (0, [])
    for path in small:
        path.write_bytes(b"version=9\n\xff" + path.read_bytes())
        code, found = _verify(shell, path)
        assert code == 5
        assert [finding["file"] for finding in found] == [str(path)]


def test_error(scene: Scene, shell: Shell) -> None:
    """Exit code 5; the finding has kind, file, byte and offset, in the table and in JSON; the rule's id in JSON."""
    scene.put(0, s.SECOND_CLEANED + s.LAST_OF_7)
    code, (finding,) = _verify(shell, scene.log_dir)
    assert code == 5
    assert finding == {
        "severity": "error",
        "kind": "key-twice",
        "rule": "C-45",
        "file": str(scene.file(0)),
        "position": len(s.SECOND_CLEANED),
        "offset": 5,
        "what": "the record at offset 5 (key 'd') occurs again at offset 13, below the first dirty offset",
    }
    answer = shell("verify", scene.log_dir, "--now-ms", NOW)
    assert answer.code == 5
    titles, row, total = answer.out.splitlines()
    assert titles.split() == ["severity", "rule", "file", "byte", "offset", "what"]
    assert row.split()[:5] == ["error", "key-twice", str(scene.file(0)), str(len(s.SECOND_CLEANED)), "5"]
    assert total.endswith(": 1 error, 0 warnings")


def test_a_warning_is_not_an_error(scene: Scene, shell: Shell) -> None:
    scene.file(0, ".log.deleted").write_bytes(b"")
    code, (finding,) = _verify(shell, scene.log_dir)
    assert (code, finding["severity"]) == (0, "warning")


def test_clean_below(scene: Scene, shell: Shell) -> None:
    """The first dirty offset is the checkpoint's; the option overrides it; a single partition has none, says a note."""
    assert read_checkpoint(scene.log_dir / CLEANER_CHECKPOINT) == {s.NAME: s.CLEAN_TO}
    code, found = _verify(shell, scene.partition, "--clean-below", 18)
    assert (code, [each["offset"] for each in found]) == (5, [3]), "a@3 and a@17"
    (scene.log_dir / CLEANER_CHECKPOINT).unlink()
    answer = shell("verify", scene.partition, "--now-ms", NOW)
    assert answer.code == 0
    assert "--clean-below" in answer.err


def test_against(scene: Scene, shell: Shell) -> None:
    """--against takes the copy, or its parent directory, also for a whole log directory."""
    scene.put(13, b"")
    for target in (scene.partition, scene.log_dir):
        code, found = _verify(shell, target, "--against", scene.copy.parent)
        assert code == 5
        assert {each["rule"] for each in found if each["severity"] == "error"} == {"R280-9"}
    assert _verify(shell, scene.partition, "--against", scene.copy)[0] == 5


def test_against_a_directory_without_the_partition(scene: Scene, shell: Shell) -> None:
    """A partition without a copy is verified, and reported as not compared."""
    code, (finding,) = _verify(shell, scene.log_dir, "--against", scene.partition)
    assert (code, finding["severity"], finding["file"]) == (0, "warning", str(scene.partition))


def test_a_partition_that_only_the_copy_has(root: Path, shell: Shell) -> None:
    """A log directory without it may have lost records."""
    names = ("orders-0", "orders-1", "carts-0")
    copy = make_log_dir(root / "copy", {name: dirty() for name in names})
    path = make_log_dir(root / "logs", {"orders-0": dirty()})
    code, found = _verify(shell, path, "--against", copy)
    assert (code, {each["severity"] for each in found}) == (0, {"warning"})
    assert [each["file"] for each in found] == [str(copy / "carts-0"), str(copy / "orders-1")]
    assert all(f"is not in {path}: " in str(each["what"]) for each in found)
    assert _verify(shell, path, "--against", copy, "--partition", "orders-0") == (0, [])


def test_staged_file(scene: Scene, shell: Shell) -> None:
    """A segment that waits to be swapped in or deleted can be verified by its name."""
    path = scene.file(0, ".log.cleaned")
    path.write_bytes(s.NEW[0])
    assert _verify(shell, path) == (0, [])
    path.write_bytes(s.NEW[0][:-1])
    assert _verify(shell, path)[0] == 5


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("{log_dir}", "--clean-below", 3), "--clean-below is for a partition"),
        (("{root}",), "neither segments nor a meta.properties"),
        (("{partition}", "--many-cleanings"), "--many-cleanings needs --against"),
        (("{log_dir}/.kafka_cleanshutdown",), "not the name of a file that can be verified"),
        (("{partition}", "--partition", "orders-0"), "--partition needs log directories"),
        (("{file}", "--against", "{root}"), "--against is for directories"),
        ((), "Missing argument"),
    ],
)
def test_usage(scene: Scene, shell: Shell, arguments: tuple[object, ...], text: str) -> None:
    """Contradicting arguments are exit code 2."""
    names = {"log_dir": scene.log_dir, "root": shell.root, "partition": scene.partition, "file": scene.file(0)}
    answer = shell("verify", *(str(argument).format(**names) for argument in arguments))
    assert answer.code == 2
    assert text in " ".join(answer.err.split())


def test_against_without_segments(scene: Scene, shell: Shell) -> None:
    (shell.root / "empty").mkdir()
    answer = shell("verify", scene.partition, "--against", shell.root / "empty")
    assert answer.code == 1
    assert "no segment to compare with" in answer.err


def test_one_bad_partition_stops_no_other(root: Path, shell: Shell) -> None:
    """OP-10: an unreadable segment is a finding, and the next partition is verified."""
    path = make_scene(root).log_dir
    (path / "aaa-0").mkdir()
    (path / "aaa-0" / f"{0:020d}.log").symlink_to(path / "nowhere")
    code, found = _verify(shell, path)
    assert (code, [each["rule"] for each in found]) == (5, ["OP-10"])
    (path / "orders-0" / f"{0:020d}.log.swap").write_bytes(b"")
    assert {each["rule"] for each in _verify(shell, path)[1]} == {"OP-10", "S-21"}


def test_read_errors_of_the_disk_are_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is reported, and kept without its frames: thousands of them would hold buffers and tables of keys."""
    path = make(root)

    def refuses(_path: Path, *_: object) -> None:
        held = bytearray(1)
        del held
        raise system_error("cannot be read", str(_path), OSError(errno.EIO, "Input/output error")) from OSError(5, "")

    unread: list[CleanerdError] = []
    monkeypatch.setattr(verify_module, "verify_in_surroundings", refuses)  # no disk and no machine fails on demand
    settings = load_settings()
    arguments = (path, VerifyRequest(now_ms=NOW), settings, CleanEnds(settings), PartitionSelection(), unread)
    verdicts = list(verify_module._verify(*arguments))
    assert [verdict.findings.errors for verdict in verdicts] == [1]
    (error,) = unread
    assert error.__traceback__ is None
    assert error.__cause__ is not None
    assert error.__cause__.__traceback__ is None


@pytest.mark.parametrize("failure", [MemoryError(), OSError(errno.ENOSPC, "No space left on device")])
def test_a_lack_of_memory_is_not_damage(
    root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    """OP-10: memory, or space for the keys, in one partition: the others are verified, and no damage is reported."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "orders-1": dirty()})

    def refuses(partition: Path, *more: Any) -> Any:
        if partition.name == "orders-0":
            raise failure
        return verify_in_surroundings(partition, *more)

    monkeypatch.setattr(verify_module, "verify_in_surroundings", refuses)  # no disk and no machine fails on demand
    answer = shell("verify", path, "--json", "--quiet")
    assert answer.code == 1
    assert [Path(each["path"]).name for each in answer.json["verified"]] == ["logs", "orders-1"]
    (found,) = answer.json["verified"][0]["findings"]
    assert (found["kind"], Path(found["file"]).name) == ("not-verified", "orders-0")


def test_a_checkpoint_that_cannot_be_read(root: Path, shell: Shell) -> None:
    """A failing disk is the worst reason to report nothing: all else is verified."""
    path = make(root)
    (path / CLEANER_CHECKPOINT).unlink(missing_ok=True)
    (path / CLEANER_CHECKPOINT).mkdir()
    answer = shell("verify", path, "--json", "--quiet")
    assert answer.code == 1
    around, partition = answer.json["verified"]
    assert [(each["kind"], Path(each["file"]).name) for each in around["findings"]] == [
        ("not-verified", CLEANER_CHECKPOINT)
    ]
    assert (partition["segments"], partition["errors"]) == (4, 0)


def test_against_itself(root: Path, shell: Shell) -> None:
    """A mistake of the operator: reported as such."""
    path = make(root) / "orders-0"
    answer = shell("verify", path, "--against", path)
    assert answer.code == 1
    assert "is the log itself, and no copy to compare it with" in answer.err


@pytest.mark.parametrize("count", [1, 5])
def test_partitions_without_compared_keys_are_counted_in_one_line(root: Path, shell: Shell, count: int) -> None:
    """In one line, however many: most topics of a broker may not be compacted."""
    path = make_log_dir(root / "logs", {f"events-{number}": dirty() for number in range(count)})
    messages = [line for line in shell("verify", path).err.splitlines() if "were not compared" in line]
    assert len(messages) == 1
    consequence = "so keys were not compared (--clean-below gives it"
    if count == 1:
        assert messages[0] == f"{path / 'events-0'}: no checkpoint says how far it is clean, {consequence})"
    else:
        assert messages[0].startswith(
            "5 partitions: no checkpoint says how far they are clean, or their topics are not compacted, "
            f"{consequence}): "
        )
        assert messages[0].endswith(f"{path / 'events-2'}, ...")
    copy = shutil.copytree(path, root / "copy")
    (printed_for_a_copy,) = [
        line for line in shell("verify", path, "--against", copy).err.splitlines() if "no checkpoint says" in line
    ]
    assert "so all of it is treated as cleaned" in printed_for_a_copy, "keys are compared with the copy's then"


def test_partition_that_is_a_link(root: Path, shell: Shell) -> None:
    """U-33: a partition's directory that is a symbolic link is named as such, and the others are verified."""
    path = make_scene(root).log_dir
    (path / "aaa-0").symlink_to(path / "orders-0")
    (path / "orders-0" / f"{0:020d}.log.swap").write_bytes(b"")
    code, found = _verify(shell, path)
    assert code == 5
    assert {each["rule"] for each in found} == {"OP-10", "S-21"}
    [link] = [each for each in found if each["rule"] == "OP-10"]
    assert link["file"] == str(path / "aaa-0")
    assert link["what"] == "is a symbolic link and not followed; the broker would follow it"


def test_after_clean(root: Path, shell: Shell) -> None:
    """The result of ``cleanerd clean`` is right; before it the same first dirty offset would have been wrong."""
    path = make(root)
    assert _verify(shell, path / "orders-0", "--clean-below", 6)[0] == 5
    assert shell.clean(path, *COMPACT).code == 0
    assert _verify(shell, path) == (0, [])


@pytest.mark.parametrize("where", ["metadata", "server.properties", "unknown"])
def test_producers_expire_as_the_broker_is_configured(root: Path, shell: Shell, where: str) -> None:
    """R192-2: as for the cleaning; with Kafka's default the batch of an expired producer would be missed."""
    first = encode_batch([s.record("a", "1", 0)], producer_id=7, producer_epoch=0, base_sequence=0)
    logs = {0: first, 1: encode_batch([s.record("a", "2", 0)], base_offset=1), 2: b""}
    path = make_log_dir(root / "logs", {"orders-0": Partition(logs)})
    directory = write_metadata(path, topics={"orders": {"cleanup.policy": "compact"}})
    message, named = ("producer.id.expiration.ms", "3600000"), []
    if where == "metadata":
        with (directory / f"{0:020d}.log").open("ab") as log:
            log.write(metadata_batch(2, config(4, "", *message)))
    elif where == "server.properties":
        (root / "server.properties").write_text("=".join(message))
        named = ["--set", f"cleanerd.broker.properties={root / 'server.properties'}"]
    copy = shutil.copytree(path, root / "copy")
    later = s.T + 7_200_000
    done = shell(
        "clean", path, "--yes", "--force", "--now-ms", later, *named, *(("--set", "=".join(message)) * (not named))
    )
    assert done.code == 0, done.err
    for target in (path, path / "orders-0"):
        answer = shell("verify", target, "--against", copy, "--now-ms", later, *named)
        assert answer.code == (5 if where == "unknown" else 0), answer.out
    assert shell("verify", path, "--against", copy, "--now-ms", s.T + 1_000_000, *named).code == 5


def test_strategy_of_the_topic(root: Path, shell: Shell) -> None:
    """R280-4, U-28: the record of the highest version is right if the settings say so, and only then."""
    loser = batches(rec("k", 1), first=1)
    kept = batches(rec("k", 9)) + encode_batch([], base_offset=1)
    log_dir = make_log_dir(root / "d", {s.NAME: Partition({0: kept, 2: b""})})
    copy = make_log_dir(root / "copy", {s.NAME: Partition({0: batches(rec("k", 9)) + loser, 2: b""})})
    reported = [log_dir / s.NAME, "--clean-below", "2", "--against", copy / s.NAME]
    by_header = ["--set", "topics.orders.compaction.strategy=header"]
    by_header += ["--set", "topics.orders.compaction.strategy.header=version"]
    assert _verify(shell, *by_header, *reported) == (0, [])
    code, found = _verify(shell, *reported)
    assert (code, {finding["rule"] for finding in found}) == (5, {"R280-9", "R534-6"})
    answer = shell("verify", "--set", "topics.orders.compaction.strategy=no", log_dir / s.NAME)
    assert answer.code == 3


@pytest.mark.parametrize(
    "command", ["verify", "inspect", "audit", "plan", "clean", "stage", "apply", "undo", "explain"]
)
def test_a_missing_path_is_the_same_everywhere(root: Path, shell: Shell, command: str) -> None:
    """Exit code 3, and the path."""
    before = ("orders-0",) if command in {"audit", "explain"} else ()
    more = {"audit": ("--key", "k"), "clean": ("--yes",), "undo": ("--yes",)}.get(command, ())
    answer = shell(command, *before, root / "missing", *more)
    assert answer.code == 3
    assert f"{root / 'missing'}: does not exist" in answer.err


def test_only_some_partitions(root: Path, shell: Shell) -> None:
    """--partition: a partition, a topic, a pattern, in log directories."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "orders-1": dirty(), "carts-0": dirty()})
    for word, expected in (
        ("orders", ["orders-0", "orders-1"]), ("*-1", ["orders-1"]), ("carts-0", ["carts-0"]),
    ):  # fmt: skip
        report = shell("verify", path, "--partition", word, "--json", "--quiet").json["verified"]
        assert [each["path"] for each in report] == [str(path), *(str(path / name) for name in expected)]
    assert shell("verify", path, "--partition", "nope").code == 3


@pytest.mark.usefixtures("kept")
def test_against_kept_segments_some_of_which_are_missing(root: Path, shell: Shell) -> None:
    """Partitions that cannot be compared are reported: without the first, the rest looked complete."""
    path = make(root)
    assert shell.clean(path, "--keep-replaced", root / "kept").code == 0
    (plan,) = (root / "kept").iterdir()
    whole = shell("verify", path, "--against", plan, "--json", "--quiet").json
    assert (whole["errors"], whole["warnings"]) == (0, 0)
    for file in (plan / "orders-0").glob(f"{0:020d}.*"):
        file.unlink()
    answer = shell("verify", path, "--against", plan, "--json", "--quiet")
    found = [each for verified in answer.json["verified"] for each in verified["findings"]]
    reported = [each["file"] for each in found if each["kind"] == "not-compared"]
    assert reported == [str(path / "orders-0" / f"{0:020d}.log")]
