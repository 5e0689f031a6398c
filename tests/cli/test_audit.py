"""``cleanerd audit``: every copy of a key, and the proof that there is none."""

from __future__ import annotations

import base64
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.verify.records import hashes_of
from tests.cleaner.driver import scratch
from tests.cli.clean_log_dirs import COMPACT, NOW, Shell, make
from tests.support.log_dirs import LOG_STARTS, write_checkpoint
from tests.support.logs import Record, encode_batch, encode_legacy, encode_marker, keyed_batch
from tests.verify import cleaned_partition as s
from tests.verify.cleaned_partition import Scene, make_scene

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def scene() -> Iterator[Scene]:
    with scratch() as root:
        yield make_scene(root)


@pytest.fixture
def shell(scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setattr("tempfile.tempdir", str(scene.log_dir.parent))
    return Shell(scene.log_dir.parent, capsys, monkeypatch)


@pytest.fixture
def shell_of_logs(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    # leftovers of other processes among temporary files are searched, too
    monkeypatch.setattr("tempfile.tempdir", str(root))
    return Shell(root, capsys, monkeypatch)


def _audit(shell: Shell, scene: Scene, *arguments: object) -> tuple[int, list[dict[str, Any]]]:
    """Run audit; returns the exit code and the occurrences of all keys."""
    answer = shell("audit", s.NAME, scene.log_dir, *arguments, "--json")
    assert answer.json["schema"] == 1
    return answer.code, [row for key in answer.json["keys"] for row in key["occurrences"]]


def test_every_field(scene: Scene, shell: Shell) -> None:
    """File, byte of the batch, number of the record, offset, time, size."""
    code, found = _audit(shell, scene, "--key", "a")
    assert code == 0
    assert found == [
        {
            "file": str(scene.file(0)), "state": "live", "position": 0, "record": 0, "offset": 3,
            "timestamp": s.T + 10, "value_bytes": 1, "tombstone": False, "version": None, "visible": True,
        },
        {
            "file": str(scene.file(14)), "state": "live", "position": len(s.ACTIVE) - len(s.END), "record": 1,
            "offset": 17, "timestamp": s.T, "value_bytes": 1, "tombstone": False, "version": None, "visible": True,
        },
    ]  # fmt: skip


def test_tombstone_and_aborted(scene: Scene, shell: Shell) -> None:
    """A tombstone still names the key; aborted data is still in the file, though no consumer gets it."""
    (tombstone,) = _audit(shell, scene, "--key", "c")[1]
    assert (tombstone["offset"], tombstone["tombstone"], tombstone["value_bytes"]) == (12, True, -1)
    (aborted,) = _audit(shell, scene, "--key", "z")[1]
    assert (aborted["offset"], aborted["visible"]) == (14, False)


def test_below_the_log_start(scene: Scene, shell: Shell) -> None:
    write_checkpoint(scene.log_dir / LOG_STARTS, {s.NAME: 4})
    found = _audit(shell, scene, "--key", "a")[1]
    assert [(row["offset"], row["visible"]) for row in found] == [(3, False), (17, True)]


def test_a_key_that_is_absent(scene: Scene, shell: Shell) -> None:
    """The erasure proof: exit code 0; --expect-absent gives 1 for a key that is there."""
    answer = shell("audit", s.NAME, scene.log_dir, "--key", "gone", "--expect-absent")
    assert answer.code == 0
    assert answer.out.startswith(f"gone: nowhere in {scene.partition} (4 files, ")
    assert "not searched: other hosts, tiered storage, backups, archives and tables" in answer.out
    assert "backups" in shell("audit", s.NAME, scene.log_dir, "--key", "gone", "--json").json["never_searched"]
    assert _audit(shell, scene, "--key", "a", "--expect-absent")[0] == 1
    assert _audit(shell, scene, "--key", "a")[0] == 0


def test_every_kind_of_file(scene: Scene, shell: Shell) -> None:
    """Files that wait to be deleted, swapped in or discarded, and staged ones."""
    secret = keyed_batch(0, [("other", "1"), ("secret", "2")], codec=4)
    places = {
        "deleted": scene.file(3, ".log.deleted"),
        "swap": scene.file(3, ".log.swap"),
        "cleaned": scene.file(3, ".log.cleaned"),
        "staged": scene.partition / ".kstage" / "20261121t010203-0123abcd" / f"{3:020d}.log",
    }
    places["staged"].parent.mkdir(parents=True)
    for path in places.values():
        path.write_bytes(secret)
    code, found = _audit(shell, scene, "--key", "secret", "--expect-absent")
    assert code == 1
    assert {row["state"]: row["file"] for row in found} == {state: str(path) for state, path in places.items()}
    assert {(row["offset"], row["record"], row["visible"]) for row in found} == {(1, 1, False)}


def test_staged_files_of_a_killed_spark_cleaning_are_searched(scene: Scene, shell: Shell) -> None:
    """Each attempt stages in a directory of its own, a level deeper: a key that was only there was not found."""
    work = scene.partition / ".kstage" / "spark-20261121T010203-0123abcd"
    path = work / "0123456789abcdef" / f"{3:020d}.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(keyed_batch(3, [("secret", "2")]))
    (work / "elsewhere").symlink_to(scene.log_dir)
    code, found = _audit(shell, scene, "--key", "secret", "--expect-absent")
    assert (code, [(row["file"], row["state"]) for row in found]) == (1, [(str(path), "staged")])


def test_hashes_of_keys_in_a_staged_cleaning(scene: Scene, shell: Shell) -> None:
    """U-47: ``removed_tombstones.keys`` has keyed hashes and the hash key, so ``audit`` finds a key there."""
    plan = scene.partition / ".kstage" / "20240101t000000-0123abcd"
    plan.mkdir(parents=True)
    hash_key = bytes(range(16))
    hashes = hashes_of([b"other", b"secret"], hash_key).astype("<u8").tobytes()
    (plan / "removed_tombstones.keys").write_bytes(hash_key + hashes)
    for key, code in (("nowhere", 0), ("secret", 5), ("other", 5)):
        answer = shell("audit", s.NAME, scene.log_dir, "--key", key, "--expect-absent")
        assert answer.code == code, answer.out + answer.err
        assert ("has the hash of a key" in answer.out + answer.err) is bool(code)


@pytest.mark.parametrize("codec", range(5))
def test_codecs(scene: Scene, shell: Shell, codec: int) -> None:
    entries: list[tuple[str | None, str | None]] = [(f"k{row}", "v" * 50) for row in range(200)]
    scene.put(14, keyed_batch(14, entries, codec=codec))
    (found,) = _audit(shell, scene, "--key", "k77")[1]
    assert (found["offset"], found["record"]) == (14 + 77, 77)


@pytest.mark.parametrize("magic", [0, 1])
def test_legacy(scene: Scene, shell: Shell, magic: int) -> None:
    """F-3: messages of the old formats hold keys too."""
    scene.put(14, encode_legacy(14, b"old", b"v", magic=magic) + encode_legacy(15, b"else", b"v", magic=magic))
    (found,) = _audit(shell, scene, "--key", "old")[1]
    assert (found["offset"], found["position"]) == (14, 0)


def test_forms_of_keys(scene: Scene, shell: Shell) -> None:
    """Text, hexadecimal digits, base64, from a file; several at once; the empty key is a key."""
    scene.put(14, keyed_batch(14, [("é", "1"), ("", "2"), (None, "3")]))
    raw = "é".encode()
    assert [row["offset"] for row in _audit(shell, scene, "--key", "é")[1]] == [14]
    assert [row["offset"] for row in _audit(shell, scene, "--key", raw.hex(), "--hex")[1]] == [14]
    packed = base64.b64encode(raw).decode()
    assert [row["offset"] for row in _audit(shell, scene, "--key", packed, "--base64")[1]] == [14]
    assert [row["offset"] for row in _audit(shell, scene, "--key", "")[1]] == [15]
    listed = shell.root / "keys"
    listed.write_text("é\na\nnowhere\n")
    answer = shell("audit", s.NAME, scene.log_dir, "--keys-file", listed, "--key", "b", "--json")
    assert {key["key"]: [row["offset"] for row in key["occurrences"]] for key in answer.json["keys"]} == {
        "b": [11],
        "é": [14],
        "a": [3],
        "nowhere": [],
    }


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_file_of_keys_in_another_encoding(scene: Scene, shell: Shell, encoding: str) -> None:
    """OP-16: its first key would be nowhere, and look like proof."""
    listed = shell.root / "keys"
    listed.write_text("a\nnowhere\n", encoding)
    answer = shell("audit", s.NAME, scene.log_dir, "--keys-file", listed, "--expect-absent")
    assert (answer.code, "byte order mark" in " ".join(answer.err.split())) == (2, True)


def test_only_equal_bytes_count(scene: Scene, shell: Shell) -> None:
    """A key with the same prefix, or one inside a value, is another one."""
    scene.put(14, keyed_batch(14, [("secretly", "secret"), ("secre", "secret")]))
    assert _audit(shell, scene, "--key", "secret") == (0, [])


def test_damage_is_not_a_proof(scene: Scene, shell: Shell) -> None:
    """Bytes that cannot be decoded may hold the key: exit code 5, whatever else was found."""
    scene.patch(scene.file(0), 61, b"\x7f")
    answer = shell("audit", s.NAME, scene.log_dir, "--key", "gone", "--expect-absent")
    assert answer.code == 5
    assert f"{scene.file(0)} at byte 0" in answer.err
    assert _audit(shell, scene, "--key", "e")[1][0]["offset"] == 6, "keys behind the damage are found"


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_wrong_checksum_is_not_a_proof(scene: Scene, shell: Shell, magic: int) -> None:
    """A flipped bit makes another key, which can be decoded: searching the right key must not report its absence."""
    if magic == 2:
        content = keyed_batch(14, [("secret", "v")]) + keyed_batch(15, [("else", "v")])
    else:
        content = encode_legacy(14, b"secret", b"v", magic=magic) + encode_legacy(15, b"else", b"v", magic=magic)
    scene.put(14, content.replace(b"secret", b"Secret"))
    for path in (scene.file(14), scene.file(14, ".log.deleted")):
        path.write_bytes(scene.file(14).read_bytes())
        answer = shell("audit", s.NAME, scene.log_dir, "--key", "secret", "--expect-absent")
        assert answer.code == 5
        assert f"{path} at byte 0: CRC-32" in answer.err
        assert "a key may be in there" in answer.err
    assert [row["offset"] for row in _audit(shell, scene, "--key", "Secret")[1]] == [14, 14], "as it is written there"
    assert [row["offset"] for row in _audit(shell, scene, "--key", "else")[1]] == [15, 15]


def test_a_live_segment_that_cannot_be_opened(scene: Scene, shell: Shell) -> None:
    """Exit code 1 would mean that the key was found. Readable segments are searched; the file is reported once."""
    scene.file(0).unlink()
    scene.file(0).symlink_to(scene.log_dir / "loop")
    answer = shell("audit", s.NAME, scene.log_dir, "--key", "gone", "--expect-absent", "--json")
    assert answer.code == 5
    assert len(answer.json["unread"]) == 1
    assert str(scene.file(0)) in answer.json["unread"][0]
    assert _audit(shell, scene, "--key", "c", "--expect-absent")[0] == 5


def test_an_unreadable_file_is_not_a_proof(scene: Scene, shell: Shell) -> None:
    """A file that cannot be opened is reported, and the others are searched."""
    scene.file(0, ".log.deleted").symlink_to(scene.log_dir / "loop")
    scene.file(1, ".log.swap").mkdir()
    answer = shell("audit", s.NAME, scene.log_dir, "--key", "e", "--json")
    assert answer.code == 5
    assert answer.json["found"] == 1
    assert len(answer.json["unread"]) == 2


def test_table(scene: Scene, shell: Shell) -> None:
    answer = shell("audit", s.NAME, scene.log_dir, "--key", "c", "--key", "zz")
    titles, row, nowhere, total, _ = answer.out.splitlines()
    assert titles.split() == ["key", "file", "byte", "record", "offset", "timestamp", "value", "state", "visible"]
    assert row.split()[-3:] == ["tombstone", "live", "yes"]
    assert nowhere.startswith("zz: nowhere in")
    assert total.startswith("1 record with 1 key in 4 files, ")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((s.NAME, "{log_dir}"), 2, "no key to find"),
        ((s.NAME, "{log_dir}", "--key", "xyz", "--hex"), 2, "not a hexadecimal key"),
        ((s.NAME, "{log_dir}", "--key", "?", "--base64"), 2, "not a base64 key"),
        ((s.NAME, "{log_dir}", "--key", "aa", "--base64", "--hex"), 2, "not both"),
        ((s.NAME, "{log_dir}", "--key-prefix", ""), 2, "matches every record"),
        ((s.NAME, "{log_dir}", "--value-contains", ""), 2, "matches every record"),
        (("order", "{log_dir}", "--key", "a"), 3, "did you mean orders"),
        (("orders-7", "{log_dir}", "--key", "a"), 3, "orders-7: no such partition"),
    ],
)
def test_usage(scene: Scene, shell: Shell, arguments: tuple[str, ...], code: int, text: str) -> None:
    answer = shell("audit", *(argument.format(log_dir=scene.log_dir) for argument in arguments))
    assert answer.code == code
    assert text in " ".join(answer.err.split())


def test_several_log_directories(scene: Scene, shell: Shell) -> None:
    """A topic's partitions may be in any of them; one that is in two of them is read in both."""
    other = scene.log_dir.parent / "d2"
    other.mkdir()
    (scene.log_dir / s.NAME).rename(other / s.NAME)
    alone = shell("audit", s.NAME, scene.log_dir, "--key", "a")
    assert (alone.code, "no such partition" in alone.err) == (3, True)
    assert shell("audit", s.NAME, scene.log_dir, other, "--key", "a", "--json").json["path"] == str(other / s.NAME)
    shutil.copytree(other / s.NAME, scene.log_dir / s.NAME)
    both = shell("audit", s.NAME, scene.log_dir, other, "--key", "a", "--json").json["partitions"]
    assert {row["path"]: row["found"] for row in both} == {str(d / s.NAME): 2 for d in (scene.log_dir, other)}


def test_in_replaced_segments(root: Path, shell_of_logs: Shell) -> None:
    """U-47: while the replaced segments are kept, a removed record proves nothing; nor does an unmounted disk."""
    path, kept = make(root), root / "kept"
    kept.mkdir()
    assert shell_of_logs.clean(path, "--keep-replaced", kept).code == 0
    assert shell_of_logs.clean(path, "--from-start", "--now-ms", NOW + 10**11).code == 0
    arguments = ("audit", "orders-0", path, "--key", "a", "--expect-absent", "--json", *COMPACT)
    answer = shell_of_logs(*arguments)
    (key,) = answer.json["keys"]
    found = {each["file"]: each["state"] for each in key["occurrences"]}
    assert answer.code == 1
    assert "kept" in found.values()
    assert all(state == "live" or each.startswith(str(kept)) for each, state in found.items())
    kept.rename(root / "unmounted")
    answer = shell_of_logs(*arguments)
    assert (answer.code, len(answer.json["unsearched"])) == (5, 1)
    assert "a key may be in there" in answer.err
    shutil.rmtree(path / "orders-0")
    (root / "unmounted").rename(kept)
    assert shell_of_logs(*arguments).code == 1


PEOPLE = (
    Record(b"cust-1/name", b"Ann"),
    Record(b"old/cust-1", b"the prefix is in the middle"),
    Record(b"cust-2/mail", None),
    Record(None, b"mail to ann@example.org."),
    Record(b"a", b"ends with ann@exa"),
    Record(b"b", b"mple.org begins this one"),
    Record(b"c", b"", headers=((b"from", b"ann@example.org"), (b"to", None))),
    Record(b"ann@example.org", b"in a key only"),
    Record(b"d", b"", headers=((b"ann@example.org", b"in a header's name only"),)),
)
""""cust-" is the prefix of keys 0 and 2, and "ann@example.org" is in the values of 3 and 6."""


@pytest.mark.parametrize("codec", range(5))
def test_key_prefixes_and_parts_of_values(scene: Scene, shell: Shell, codec: int) -> None:
    """OP-16: keys with that prefix, values and header values that contain the bytes.

    A record that matches twice is one.
    """
    marker = encode_marker(14 + len(PEOPLE), commit=True, producer_id=9, timestamp=s.T)
    scene.put(14, encode_batch(PEOPLE, base_offset=14, codec=codec) + marker)
    arguments = ("--key-prefix", "cust-", "--value-contains", "ann@example.org", "--value-contains", "Ann", "--json")
    answer = shell("audit", s.NAME, scene.log_dir, "--key", "cust-1/name", "--expect-absent", *arguments)
    assert answer.code == 1
    found = answer.json
    assert found["found"] == 4
    offsets = {
        next(iter(each.items()))[1]: [row["offset"] - 14 for row in each["occurrences"]]
        for kind in ("keys", "key_prefixes", "value_contains")
        for each in found[kind]
    }
    assert offsets == {"cust-1/name": [0], "cust-": [0, 2], "ann@example.org": [3, 6], "Ann": [0]}
    assert [row.get("key") for row in found["value_contains"][0]["occurrences"]] == [None, "c"]
    assert "key" not in found["keys"][0]["occurrences"][0], "it is that of the entry"


@pytest.mark.parametrize("magic", [0, 1])
def test_parts_of_old_messages(scene: Scene, shell: Shell, magic: int) -> None:
    """OP-16, F-3."""
    scene.put(14, encode_legacy(14, b"old-1", b"to Ann", magic=magic) + encode_legacy(15, b"x", None, magic=magic))
    answer = shell("audit", s.NAME, scene.log_dir, "--key-prefix", "old", "--value-contains", "Ann", "--json")
    assert [each["occurrences"][0]["offset"] for each in (*answer.json["key_prefixes"], *answer.json["value_contains"])] == [14, 14]  # fmt: skip  # noqa: E501


def test_parts_in_text(scene: Scene, shell: Shell) -> None:
    """OP-16: the searched texts that a record matches, and those that no record does."""
    scene.put(14, encode_batch(PEOPLE, base_offset=14))
    arguments = ("--key-prefix", "cust-", "--value-contains", "Ann", "--value-contains", "Bob")
    titles, *rows, nowhere, total, _ = shell("audit", s.NAME, scene.log_dir, *arguments).out.splitlines()
    assert titles.split()[:3] == ["key", "matches", "file"]
    assert "key prefix cust-, value with Ann" in rows[0]
    assert len(rows) == 2
    assert nowhere.startswith(f"value with Bob: nowhere in {scene.partition} (4 files, ")
    assert total.startswith("2 records with 2 keys in 4 files, ")


def test_every_topic_of_every_directory(scene: Scene, shell: Shell) -> None:
    """OP-16: '*' means all topics of all directories, and files of others that a broker is about to delete."""
    other = scene.log_dir.parent / "d2"
    places = {
        scene.partition: scene.file(14),
        other / "clicks-3": other / "clicks-3" / f"{0:020d}.log",
        other / f"gone-0.{'0' * 32}-delete": other / f"gone-0.{'0' * 32}-delete" / f"{0:020d}.log",
    }
    for path in places.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(keyed_batch(int(path.stem), [("secret-1", "v")]))
    arguments = ("audit", "*", scene.log_dir, other, "--key-prefix", "secret", "--expect-absent")
    answer = shell(*arguments, "--json")
    assert answer.code == 1
    assert {each["path"]: each["found"] for each in answer.json["partitions"]} == dict.fromkeys(map(str, places), 1)
    assert shell(*arguments).out.splitlines()[-1].startswith("3 records with 1 key in 6 files, ")
    nowhere = shell("audit", "*", scene.log_dir, other, "--key", "gone", "--expect-absent")
    assert (nowhere.code, nowhere.out.startswith("gone: nowhere in 3 partitions (6 files, ")) == (0, True)


def test_a_topic_of_which_only_unmounted_segments_are_left(root: Path, shell_of_logs: Shell) -> None:
    """U-47: its partition was removed, so no log directory has its name; '*' still proves nothing."""
    path, kept = make(root), root / "kept"
    kept.mkdir()
    assert shell_of_logs.clean(path, "--keep-replaced", kept).code == 0
    shutil.rmtree(path / "orders-0")
    kept.rename(root / "unmounted")
    answer = shell_of_logs("audit", "*", path, "--key", "a", "--expect-absent", *COMPACT)
    assert (answer.code, "cannot be found" in answer.err) == (5, True)
