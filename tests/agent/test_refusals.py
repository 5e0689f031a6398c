"""Staged files that the agent must refuse; the broker itself would accept all of them."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.format.names import file_name
from tests.agent import damage
from tests.agent.refused_requests import changed, refused
from tests.support.log_dirs import batches_of
from tests.support.root import needs_root

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.cleaner.manifest import Manifest, ManifestGroup
    from tests.agent.live import Topic
    from tests.agent.raw_client import Asking

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

BY_CODE = {
    "bad_log": damage.LOG,
    "foreign_batch": damage.FOREIGN,
    "last_batch": {"last batch missing": damage.without_last_batch},
    "bad_index": damage.INDEX,
    "bad_timeindex": damage.TIMEINDEX,
    "bad_txnindex": damage.TXNINDEX,
}
CASES = [
    pytest.param(code, harm, id=f"{code}-{name}") for code, table in BY_CODE.items() for name, harm in table.items()
]


@pytest.mark.parametrize(("code", "harm"), CASES)
def test_damage_is_named(
    topic: Topic, manifest: Manifest, group: ManifestGroup, agent: Asking, code: str, harm: damage.Damage
) -> None:
    """A-23.2 .. A-23.7, U-22, LT-3: right by size and checksum, wrong in content. Each is refused by its rule."""
    files = harm(group, topic.staged_files(manifest, group))
    assert files != topic.staged_files(manifest, group)
    request = changed(topic, manifest, group, files)
    assert refused(topic, agent, request) == code
    shutil.rmtree(topic.directory / ".kstage" / request["plan"])


def test_undamaged_staged_files_pass(topic: Topic, manifest: Manifest, group: ManifestGroup, agent: Asking) -> None:
    """The control: without damage, only the order of the checks refuses."""
    request = changed(topic, manifest, group, topic.staged_files(manifest, group))
    request["witnesses"][0]["size"] += 1
    assert refused(topic, agent, request) in {"evidence_changed", "bad_plan", "source_changed"}
    shutil.rmtree(topic.directory / ".kstage" / request["plan"])


@pytest.mark.parametrize("how", ["up to a COMMIT", "over another marker"])
def test_corrections_that_the_log_does_not_prove(topic: Topic, manifest: Manifest, agent: Asking, how: str) -> None:
    """A-40: they would hide committed records from readers."""
    found = 0
    for group in manifest.groups:
        files = topic.staged_files(manifest, group)
        if "txnindex" not in files:
            continue
        entries, data = damage.txn_entries(files), {}
        ends = {last for _, _, last in entries}
        for batch in batches_of(files["log"]):
            header = batch.header
            if header.producer_id in data and header.is_control and header.last_offset not in ends:
                if how == "up to a COMMIT":
                    harmed = damage.with_correction(
                        files, header.producer_id, data[header.producer_id], header.last_offset
                    )
                    assert refused(topic, agent, changed(topic, manifest, group, harmed)) == "bad_txnindex"
                    found += 1
            elif header.is_transactional and not header.is_control:
                data.setdefault(header.producer_id, header.base_offset)
        for producer, first, last in entries:
            before = [begin for other, begin, end in entries if other == producer and end < last]
            if how == "over another marker" and before:
                harmed = damage.with_correction(files, producer, before[0], last)
                assert first > before[0]
                assert refused(topic, agent, changed(topic, manifest, group, harmed)) == "bad_txnindex"
                found += 1
    assert found


@pytest.mark.parametrize("kind", ["log", "index", "timeindex", "txnindex"])
@pytest.mark.parametrize("fact", ["sizes", "crc32c"])
def test_size_and_checksum_of_the_request(
    topic: Topic, manifest: Manifest, group: ManifestGroup, agent: Asking, kind: str, fact: str
) -> None:
    """A-23.1: the files must be the staged ones, byte for byte."""
    request = topic.request(manifest, (group,))
    request["groups"][0][fact][kind] += 1
    assert refused(topic, agent, request) == f"bad_{kind}"


def place(topic: Topic, request: dict[str, Any], kind: str) -> str:
    return str(topic.directory / ".kstage" / request["plan"] / request["groups"][0]["files"][kind])


def link_to_itself(topic: Topic, request: dict[str, Any]) -> None:
    path = place(topic, request, "index")
    os.rename(path, path + ".real")
    os.symlink(path + ".real", path)


def second_name(topic: Topic, request: dict[str, Any]) -> None:
    os.link(place(topic, request, "log"), place(topic, request, "log") + ".second")


def directory_instead(topic: Topic, request: dict[str, Any]) -> None:
    os.unlink(place(topic, request, "timeindex"))
    os.mkdir(place(topic, request, "timeindex"))


def another_owner(topic: Topic, request: dict[str, Any]) -> None:
    os.chown(place(topic, request, "log"), 12345, -1)


def missing(topic: Topic, request: dict[str, Any]) -> None:
    os.unlink(place(topic, request, "index"))


def linked_folder(topic: Topic, request: dict[str, Any]) -> None:
    folder = topic.directory / ".kstage" / request["plan"]
    folder.rename(topic.directory / ".kstage" / "elsewhere")
    folder.symlink_to(topic.directory / ".kstage" / "elsewhere")


def renamed_in_request(name: str) -> Callable[[Topic, dict[str, Any]], None]:
    def change(_topic: Topic, request: dict[str, Any]) -> None:
        request["groups"][0]["files"]["log"] = name

    return change


def one_file_for_two(_topic: Topic, request: dict[str, Any]) -> None:
    request["groups"][0]["files"]["log"] = request["groups"][0]["files"]["index"]


PLACES = {
    "symbolic link": ("bad_path", link_to_itself),
    "hard link": ("bad_path", second_name),
    "directory": ("bad_path", directory_instead),
    "linked folder": ("bad_path", linked_folder),
    "missing": ("no_staged_file", missing),
    "upwards": ("bad_path", renamed_in_request("../00000000000000000000.log")),
    "absolute": ("bad_path", renamed_in_request("/etc/passwd")),
    "hidden": ("bad_path", renamed_in_request(".log")),
    "no name": ("bad_path", renamed_in_request("")),
    "zero byte": ("bad_path", renamed_in_request("a\0b")),
    "one for two": ("bad_path", one_file_for_two),
    "no such name": ("no_staged_file", renamed_in_request("nothing.log")),
}


@pytest.mark.parametrize(("code", "change"), PLACES.values(), ids=PLACES.keys())
def test_only_plain_files_of_the_plan(
    topic: Topic,
    manifest: Manifest,
    group: ManifestGroup,
    agent: Asking,
    code: str,
    change: Callable[[Topic, dict[str, Any]], None],
) -> None:
    """A-23.1, A-30, U-21: names that stay inside of the plan's directory."""
    request = changed(topic, manifest, group, topic.staged_files(manifest, group))
    change(topic, request)
    assert refused(topic, agent, request) == code
    for leftover in (request["plan"], "elsewhere"):
        path = topic.directory / ".kstage" / leftover
        path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)


@needs_root
def test_files_of_another_user(topic: Topic, manifest: Manifest, group: ManifestGroup, agent: Asking) -> None:
    """A-23.1: the broker could not delete them."""
    request = changed(topic, manifest, group, topic.staged_files(manifest, group))
    another_owner(topic, request)
    assert refused(topic, agent, request) == "bad_owner"
    shutil.rmtree(topic.directory / ".kstage" / request["plan"])


def test_a_valid_plan_is_swapped_after_the_refusals(topic: Topic, manifest: Manifest, agent: Asking) -> None:
    """After all of this the plan is still valid; leftovers of the broker's own cleaner do not prevent the swap."""
    first = manifest.groups[0].base
    for kind in ("log", "txnindex"):
        (topic.directory / (file_name(first, f".{kind}") + ".cleaned")).write_bytes(b"left over")
    result = agent.ask("swap", **topic.request(manifest))
    assert result["done"] == [group.base for group in manifest.groups]
    assert not list(topic.directory.glob("*.cleaned"))
    assert topic.read() == topic.latest
