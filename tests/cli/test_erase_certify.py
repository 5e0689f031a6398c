"""``cleanerd erase certify`` and ``verify``: signed statements (U-86), and what they prove together (U-87)."""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.errors import CorruptionError
from cleanerd.inspection.snapshots import search_snapshots
from cleanerd.state.erasure_requests import ErasureRequests
from cleanerd.verify.audit import Term
from cleanerd.verify.certificate import read_certificate, read_key, signed
from cleanerd.verify.searched_files import SearchedFiles
from tests.cli.erasing import ABSENT, BEFORE_MS, KEY, PRESENT, SALT, TOPIC_ID, Cluster
from tests.support.log_dirs import write_segment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.clean_log_dirs import Answer, Shell

DAY_MS = 86_400_000


@pytest.fixture
def cluster(root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr("tempfile.tempdir", str(root / "no"))  # it is searched, too
    return Cluster(root, shell)


def both(cluster: Cluster) -> Cluster:
    assert [cluster.certify(broker).code for broker in (1, 2)] == [0, 0]
    return cluster


def sign_again(cluster: Cluster, number: int, **changes: Any) -> None:
    """The certificate of a broker with other fields, signed by its own key."""
    path = cluster.certificate(number)
    changed = replace(read_certificate(path).statement, **changes)
    path.write_bytes(signed(changed, read_key(cluster.root / f"{number}.key")))


def why_not(answer: Answer) -> str:
    """The failures of ``verify --json``, whose result is not complete."""
    assert answer.code == 1
    assert not answer.json["complete"]
    found = [failure for each in answer.json["replicas"] for failure in each["failures"]]
    return "\n".join([*found, *answer.json["failures"]])


def test_complete(cluster: Cluster) -> None:
    """Every assigned replica, by trusted keys, after the request."""
    answer = both(cluster).verify()
    assert answer.code == 0, answer.out + answer.err
    assert answer.out.endswith("complete: the key is gone from 2 of 2 replicas of orders\n")
    document = cluster.verify("--json", "--key", KEY).json
    assert (document["complete"], document["failures"]) == (True, [])
    assert [(each["broker"], each["proven"]) for each in document["replicas"]] == [(1, True), (2, True)]


def test_the_statement_lists_the_searched_files(cluster: Cluster) -> None:
    """Ids, offsets, files with size and digest; a hash of the key, and the key itself in no place."""
    assert cluster.certify(1).code == 0
    data = cluster.certificate(1).read_bytes()
    assert KEY.encode() not in data
    report = json.loads(data)["statement"]
    (replica,) = report["replicas"]
    assert report["key"] == {"salt": SALT.hex(), "sha256": hashlib.sha256(SALT + KEY.encode()).hexdigest()}
    assert (report["broker"], report["topic"], report["request"], report["found"]) == (
        1,
        "orders",
        "0123456789abcdef",
        0,
    )
    assert (replica["partition"], replica["from_offset"], replica["to_offset"]) == (0, 0, 3)
    assert replica["topic_id"].startswith("AAAAAAAAAAAA")
    assert [(each["name"], each["size_bytes"], each["sha256"]) for each in replica["files"]] == [
        (f"{base:020d}.log", len(data), hashlib.sha256(data).hexdigest()) for base, data in ABSENT.items()
    ]


def test_without_a_request_each_has_a_salt_of_its_own(cluster: Cluster) -> None:
    """The verifier then needs the key."""
    paths = []
    for broker in (1, 2):
        paths.append(cluster.root / f"own-{broker}.json")
        answer = cluster.shell(
            "erase", "certify", "orders", cluster.dirs[broker], "--key", KEY, "--key-file",
            cluster.root / f"{broker}.key", "--output", paths[-1],
        )  # fmt: skip
        assert answer.code == 0
    salts = {read_certificate(path).statement.key.salt for path in paths}
    assert len(salts) == 2
    words = ("--topic", "orders", "--since-ms", BEFORE_MS, "--trust", cluster.trust, "--metadata", cluster.metadata)
    assert cluster.shell("erase", "verify", *paths, *words, "--key", KEY).code == 0
    other = cluster.shell("erase", "verify", *paths, *words, "--key", "another", "--json")
    assert "is about another key" in why_not(other)
    assert cluster.shell("erase", "verify", *paths, *words).code == 2


def test_found(cluster: Cluster) -> None:
    """The statement is signed nevertheless, and proves the opposite."""
    write_segment(cluster.dirs[2] / "orders-0", 0, PRESENT[0])
    cluster.certify(1)
    answer = cluster.certify(2)
    assert answer.code == 1
    assert "1 record in 3 files of 1 replica on broker 2" in answer.err
    assert why_not(cluster.verify("--json")) == "the key was found there (1 records)"


def test_places_that_could_not_be_searched_are_listed(cluster: Cluster) -> None:
    cluster.certify(1)
    damaged = bytearray(ABSENT[0])
    damaged[-1] ^= 1
    (cluster.dirs[2] / "orders-0" / f"{0:020d}.log").write_bytes(damaged)
    assert cluster.certify(2).code == 5
    assert why_not(cluster.verify("--json")).startswith(
        f"not searched: {cluster.dirs[2]}/orders-0/{0:020d}.log at byte"
    )


def test_a_directory_of_the_broker_that_was_not_named(cluster: Cluster) -> None:
    other = cluster.root / "more"
    other.mkdir()
    dirs = f"{cluster.dirs[1]},{other}"
    answer = cluster.certify(1, "--set", f"cleanerd.log.dirs={dirs}")
    assert answer.code == 5
    assert f"{other}: a log directory of the broker, was not named" in answer.err


def test_directories_of_two_brokers(cluster: Cluster) -> None:
    answer = cluster.certify(1, cluster.dirs[2])
    assert answer.code == 3
    assert "belong to different brokers" in answer.err


def test_every_replica_is_needed(cluster: Cluster) -> None:
    """U-87: a replica without a certificate, on a broker or of another partition."""
    both(cluster)
    assert why_not(cluster.verify("--json", brokers=(1,))) == "a certificate is missing"
    cluster.assign({0: {1, 2}, 1: {1}})
    answer = cluster.verify()
    assert answer.code == 1
    assert "NOT complete: proven for 2 of 3 replicas of orders" in answer.out


def test_a_replica_that_is_not_assigned_is_not_needed(cluster: Cluster) -> None:
    both(cluster)
    cluster.assign({0: {1}})
    answer = cluster.verify()
    assert answer.code == 0
    assert "broker 2 is not assigned to orders-0: this replica is not needed" in answer.err


def test_replicas_that_were_reassigned_after_the_request(cluster: Cluster) -> None:
    """U-87: the new replica needs a certificate, and that of the old one proves nothing about it."""
    both(cluster)
    cluster.assign({0: {1, 3}})
    answer = cluster.verify("--json")
    assert why_not(answer) == "a certificate is missing"
    assert [(each["broker"], each["proven"]) for each in answer.json["replicas"]] == [(1, True), (3, False)]
    (note,) = answer.json["notes"]
    assert note.endswith("broker 2 is not assigned to orders-0: this replica is not needed")


@pytest.mark.parametrize(("broker", "partition"), [(9, 0), (2, 7)])
def test_a_replica_that_the_cluster_does_not_have(cluster: Cluster, broker: int, partition: int) -> None:
    """U-87: an unknown broker, an unknown partition: reported, and no other replica is proven by it."""
    both(cluster)
    cluster.trust.write_text("".join(f"{key}\n" for key in cluster.keys.values()))
    (replica,) = read_certificate(cluster.certificate(2)).statement.replicas
    sign_again(cluster, 2, broker=broker, replicas=(replace(replica, partition=partition),))
    answer = cluster.verify("--json")
    assert why_not(answer) == "a certificate is missing"
    (note,) = answer.json["notes"]
    assert note.endswith(f"broker {broker} is not assigned to orders-{partition}: this replica is not needed")


def test_searched_before_the_tombstone(cluster: Cluster) -> None:
    """U-87: the log decides: a replica that had not fetched the tombstone yet, whatever its clock."""
    request = cluster.request(tombstones={0: 3})
    ErasureRequests(cluster.root / "state").save(request)
    answers = [cluster.certify(broker) for broker in (1, 2)]
    assert [each.code for each in answers] == [1, 1]
    assert "orders-0 ends at offset 3, below the tombstone at offset 3: certify again" in answers[0].err
    assert ErasureRequests(cluster.root / "state").load() == [request], "it stays open here"
    assert "was searched up to offset 3, and the tombstone is at offset 3" in why_not(cluster.verify("--json"))


def test_older_than_the_request(cluster: Cluster) -> None:
    both(cluster)
    cluster.request(requested_ms=int(time.time() * 1000) + DAY_MS, tombstones={})
    assert "before the request of" in why_not(cluster.verify("--json"))


def test_clocks_apart(cluster: Cluster) -> None:
    """A host ahead of this one; and a host behind the requester's that has the tombstone already."""
    both(cluster)
    now_ms = int(time.time() * 1000)
    text = why_not(cluster.verify("--json", "--now-ms", now_ms - DAY_MS))
    assert "later than now: compare the clock of" in text
    cluster.request(requested_ms=now_ms + DAY_MS)
    assert "with the requester's, and certify again" in why_not(cluster.verify("--json"))
    cluster.request()
    sign_again(cluster, 1, began_ms=now_ms, ended_ms=now_ms - DAY_MS)
    assert "the search ended before it began" in why_not(cluster.verify("--json"))


def test_expired(cluster: Cluster) -> None:
    both(cluster)
    cluster.certify(2, "--valid-days", 1)
    in_two_days = int(time.time() * 1000) + 2 * DAY_MS
    found = cluster.verify("--json", "--now-ms", in_two_days).json["replicas"]
    assert [bool(each["failures"]) for each in found] == [False, True]
    assert "expired at" in found[1]["failures"][0]


def test_the_newest_statement_is_used(cluster: Cluster) -> None:
    """The key came back: an older certificate does not help."""
    both(cluster)
    older = cluster.root / "older.json"
    cluster.certificate(2).rename(older)
    write_segment(cluster.dirs[2] / "orders-0", 0, PRESENT[0])
    cluster.certify(2)
    assert "the key was found there" in why_not(cluster.verify("--json", older))


def test_two_statements_about_one_replica(cluster: Cluster) -> None:
    """U-87: the same one twice counts once; of two of the same time the worse one counts, in any order."""
    both(cluster)
    assert cluster.verify(cluster.certificate(2)).code == 0
    absent = cluster.certificate(2).read_bytes()
    changes: tuple[dict[str, Any], ...] = ({"found": 3}, {"unsearched": ("a file",)})
    for change in changes:
        sign_again(cluster, 2, **change)
        worse = cluster.certificate(2).read_bytes()
        for number, data in enumerate((worse, absent)):
            (cluster.root / f"of-2-{number}.json").write_bytes(data)
        for order in ((0, 1), (1, 0)):
            paths = [cluster.root / f"of-2-{number}.json" for number in order]
            assert why_not(cluster.verify("--json", *paths, brokers=(1,)))
        cluster.certificate(2).write_bytes(absent)


def test_one_byte_changed(cluster: Cluster) -> None:
    """U-86: wherever it is, the file is refused, or it has the same content and key."""
    assert cluster.certify(1).code == 0
    path = cluster.certificate(1)
    data, right = path.read_bytes(), read_certificate(path)
    pick, refused = random.Random(0), 0
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1 << pick.randrange(8)
        path.write_bytes(changed)
        try:
            found = read_certificate(path)
        except CorruptionError:
            refused += 1
        else:
            assert (found.statement, found.public_key) == (right.statement, right.public_key)
    assert refused > len(data) * 9 // 10


def test_changed_after_it_was_signed(cluster: Cluster) -> None:
    both(cluster)
    path = cluster.certificate(2)
    document = json.loads(path.read_text())
    document["statement"]["replicas"][0]["to_offset"] += 1
    path.write_text(json.dumps(document))
    answer = cluster.verify()
    assert answer.code == 5
    assert f"not accepted: {path}: its signature is wrong" in answer.out
    path.write_text(path.read_text()[:100])
    assert "is not a certificate of cleanerd" in cluster.verify().out


def test_a_field_that_appears_twice(cluster: Cluster) -> None:
    """The signed value counts, wherever a forged one is inserted."""
    both(cluster)
    path = cluster.certificate(2)
    document = json.loads(path.read_text())
    real, forged = (json.dumps({**document["statement"], "found": found}) for found in (0, 7))
    rest = {name: value for name, value in document.items() if name != "statement"}
    for statements, code in (((forged, real), 0), ((real, forged), 5)):
        fields = "".join(f', "statement": {each}' for each in statements)
        path.write_text(json.dumps(rest)[:-1] + fields + "}")
        assert cluster.verify().code == code


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 100_000, '{"statement": NaN}', '{"format": 1, "kind": 1e999}'])
def test_hostile_files(cluster: Cluster, text: str) -> None:
    both(cluster)
    cluster.certificate(1).write_text(text)
    assert "is not a certificate of cleanerd" in cluster.verify().out


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "cleanerd erasure certificate", "format": 2}', "\x00", "9"])
def test_files_that_are_not_certificates(cluster: Cluster, text: str) -> None:
    both(cluster)
    cluster.certificate(1).write_text(text)
    answer = cluster.verify()
    assert answer.code == 5
    assert "is not a certificate of cleanerd" in answer.out


def test_a_foreign_signature(cluster: Cluster) -> None:
    """Signed by a key that is not trusted, or trusted for another broker only."""
    both(cluster)
    cluster.trust.write_text(f"# broker 1\n{cluster.keys[1]}\n\n")
    assert "which is not trusted (--trust)" in why_not(cluster.verify("--json"))
    cluster.trust.write_text(f"{cluster.keys[1]} 1\n{cluster.keys[2]} 1\n")
    assert "is about broker 2, and its key is trusted for broker 1 only" in why_not(cluster.verify("--json"))
    answer = cluster.verify("--trust", cluster.keys[2])
    assert answer.code == 0, "the last statement about a key counts"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cluster_id": "another"}, "is about cluster another"),
        ({"topic": "others"}, "is about topic others"),
        ({"request": "f" * 16}, "is about request ffffffffffffffff"),
        ({"broker": None}, "trusted for broker 2 only"),
    ],
)
def test_a_statement_about_another_request(cluster: Cluster, change: dict[str, Any], why: str) -> None:
    both(cluster)
    sign_again(cluster, 2, **change)
    assert why in why_not(cluster.verify("--json"))


def test_the_topic_was_created_again(cluster: Cluster) -> None:
    both(cluster)
    cluster.request(topic_id="A" * 22)
    assert "was created again since the request" in why_not(cluster.verify("--json"))
    statement = read_certificate(cluster.certificate(2)).statement
    cluster.request()
    sign_again(cluster, 2, replicas=tuple(replace(each, topic_id=None) for each in statement.replicas))
    assert "has another topic id (None" in why_not(cluster.verify("--json"))
    cluster.certify(2)
    other = tuple(replace(each, topic_id="B" * 22) for each in statement.replicas)
    for replicas in (other, (*statement.replicas, *other)):
        sign_again(cluster, 2, replicas=replicas)
        assert why_not(cluster.verify("--json")).startswith(f"has another topic id ({'B' * 22}, not AAAAAAAAAAAA")
    assert TOPIC_ID.int == 42


def test_key_files(cluster: Cluster, root: Path) -> None:
    """Never replaced, private, and of the right kind."""
    file = root / "new.key"
    answer = cluster.shell("erase", "keygen", file)
    public = answer.out.strip()
    assert (answer.code, file.stat().st_mode & 0o777) == (0, 0o600)
    assert (root / "new.key.pub").read_text() == f"{public}\n"
    assert read_key(file).public_key == public
    assert cluster.shell("erase", "keygen", file).code == 3

    def refused(path: Path) -> str:
        answer = cluster.certify(1, "--key-file", path)
        assert answer.code == 3
        return answer.err

    file.chmod(0o640)
    assert "other users may read or change it (chmod 600" in refused(file)
    assert "does not exist (cleanerd erase keygen makes one)" in refused(root / "none.key")
    bad = root / "bad.key"
    bad.write_text("no key")
    bad.chmod(0o600)
    assert "is not a private key without a password (PEM)" in refused(bad)
    assert "is not a plain file" in refused(root)


def test_bad_arguments(cluster: Cluster, root: Path) -> None:
    both(cluster)
    assert "is not a public key" in cluster.verify("--trust", "ed25519:abc").err
    for option in ("--trust", "--request"):
        unknown_file = cluster.verify(option, root / "none")
        assert (unknown_file.code, f"{root / 'none'}: does not exist" in unknown_file.err) == (3, True)
    assert cluster.certify(1, key="another").err.endswith("is about another key than --key\n")
    unknown = cluster.shell("erase", "certify", "nothing", cluster.dirs[1], "--key", "k", "--key-file", root / "1.key")
    assert (unknown.code, "no such partition or topic" in unknown.err) == (3, True)
    partition = cluster.shell(
        "erase", "certify", "orders-0", cluster.dirs[1], "--key", "k", "--key-file", root / "1.key"
    )
    assert (partition.code, "is not a topic" in partition.err) == (3, True)
    cluster.request(topic="others")
    assert cluster.verify().code == 3, "the cluster has no such topic"
    (root / "request.json").write_text("{}")
    assert (cluster.verify().code, "is not an erasure request" in cluster.verify().err) == (3, True)


def test_certified_requests_are_closed_here(cluster: Cluster, root: Path) -> None:
    """An open request of this host is found by its key."""
    requests = ErasureRequests(root / "state")
    requests.save(cluster.request())
    answer = cluster.shell(
        "erase",
        "certify",
        "orders",
        cluster.dirs[1],
        "--key",
        KEY,
        "--key-file",
        root / "1.key",
        "--output",
        root / "1.json",
    )
    assert answer.code == 0
    (request,) = requests.load()
    assert not request.is_open
    assert read_certificate(root / "1.json").statement.request == request.id


def test_files_that_change_during_the_search(cluster: Cluster) -> None:
    """Only the active segment may grow; any other change is listed, and then nothing is proven."""
    partition = cluster.dirs[1] / "orders-0"
    active, sealed = partition / f"{3:020d}.log", partition / f"{0:020d}.log"
    files = SearchedFiles()
    files.begin(partition)
    active.write_bytes(PRESENT[2])
    assert files.statements(partition, "live")[1] == []
    sealed.write_bytes(sealed.read_bytes())
    os.utime(sealed, (1, 1))
    (partition / f"{2:020d}.log.swap").write_bytes(ABSENT[0])
    text = "\n".join(files.statements(partition, "live")[1])
    assert f"{sealed}: changed while it was searched (it was written to, or replaced)" in text
    assert f"{2:020d}.log.swap: appeared during the search" in text
    sealed.unlink()
    assert "changed while it was searched" in "\n".join(files.statements(partition, "live")[1])


def test_an_active_segment_that_was_cut_and_written_again(cluster: Cluster) -> None:
    partition = cluster.dirs[1] / "orders-0"
    active = partition / f"{3:020d}.log"
    active.write_bytes(ABSENT[0])
    files = SearchedFiles()
    files.begin(partition)
    active.write_bytes(PRESENT[0] + PRESENT[2])
    assert len(files.statements(partition, "live")[1]) == 1


def test_snapshots(cluster: Cluster, root: Path) -> None:
    """--also: Parquet by its columns, archives by their records; other kinds of files are listed."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    place = root / "snapshot" / "topic=orders"
    place.mkdir(parents=True)
    (place / "_SUCCESS").touch()
    rows = pa.table({"key": [b"a", KEY.encode()], "value": [b"1", None]})
    pq.write_table(rows.slice(0, 1), place / "0.parquet")
    term = Term("key", KEY.encode())
    assert (search_snapshots(place, term).found, search_snapshots(place, term).unsearched) == (0, [])
    assert cluster.certify(1, "--also", root / "snapshot").code == 0
    (other,) = read_certificate(cluster.certificate(1)).statement.other_places
    assert {each.name for each in other.files} == {"topic=orders/_SUCCESS", "topic=orders/0.parquet"}
    pq.write_table(rows, place / "1.parquet")
    (place / "0.json").write_text(json.dumps({"nested": KEY}))
    archive = root / "snapshot" / "orders-0"
    archive.mkdir()
    (archive / f"{0:020d}.log").write_bytes(PRESENT[0])
    assert search_snapshots(root / "snapshot", term).found == 3
    assert cluster.certify(1, "--also", root / "snapshot").code == 1
    (place / "data.avro").write_bytes(b"Obj")
    answer = cluster.certify(1, "--also", root / "snapshot")
    assert (answer.code, "data.avro: a file of this kind cannot be searched" in answer.err) == (5, True)
    (place / "2.parquet").write_bytes(b"PAR1")
    assert "2.parquet: is not a Parquet file" in cluster.certify(1, "--also", root / "snapshot").err


def test_without_the_extra(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message about the missing package comes before any search."""
    both(cluster)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)  # every test environment has the package
    for answer in (cluster.certify(1), cluster.verify(), cluster.shell("erase", "keygen", cluster.root / "k")):
        assert answer.code == 3
        assert "not installed: cryptography" in answer.err
