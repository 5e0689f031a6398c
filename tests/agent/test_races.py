"""Another event happens before a swap is complete: requests stopped at named moments, in a build made for that."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.agent.building import changed_source, stopping_build
from tests.agent.live import JAR, attach, build_of, is_another_build
from tests.agent.raw_client import Asking, RefusedError
from tests.agent.stopping import Stopping, stopping_broker
from tests.brokers.node import error_lines, wait_until
from tests.brokers.traffic import SILENT
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cleanerd.cleaner.manifest import Manifest
    from tests.agent.live import Topic

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

SET = AlterConfigOpType.SET
STATE = "String state = log.cleaningState();"


@pytest.fixture(scope="module", params=["4.3", pytest.param("3.9", marks=pytest.mark.long)])
def stopping(request: pytest.FixtureRequest) -> Iterator[Stopping]:
    """A broker of every release with the build that stops."""

    def build(work_dir: Path) -> Path:
        changed_source(work_dir, "moments", "Pauses.java", (STATE, 'Moment.reached("asleep");\n            ' + STATE))
        # A name that appears in between is seen at once, however long the previous listing took.
        return stopping_build(work_dir, "Evidence.java", ("LISTING_TIMES = 20;", "LISTING_TIMES = 0;"))

    with stopping_broker(request.param, build) as started:
        yield started


def test_the_released_jar_cannot_stop() -> None:
    """A-31: it has no code for tests."""
    assert b"cleanerd.test" not in JAR.read_bytes()


def unfinished(topic: Topic) -> list[str]:
    """Names that a swap must not leave behind."""
    return [path.name for path in topic.directory.iterdir() if path.suffix in {".cleaned", ".swap"}]


def mapped(topic: Topic) -> set[str]:
    """Names of files in its directory that the broker has mapped into memory."""
    lines = Path(f"/proc/{topic.broker.pid}/maps").read_text().splitlines()
    return {Path(line.split()[-1]).name for line in lines if f"/{topic.directory.name}/" in line}


@pytest.mark.long
@pytest.mark.parametrize(("moment", "waits"), [("validated", False), ("opened", False), ("opened", True)])
def test_the_topic_is_deleted(stopping: Stopping, moment: str, waits: bool) -> None:
    """The swap is refused and the directory is deleted, staging included; also if the log has no segments by then."""
    topic = stopping.live.topic(f"deleted-at-{moment}-{waits}", transactions=False)
    request = topic.request(topic.stage(output_bytes=6_000))
    directory = topic.directory
    admin = AdminClient({"bootstrap.servers": topic.broker.bootstrap}, logger=SILENT)
    with stopping.at(moment, request) as swap:
        admin.delete_topics([topic.name])[topic.name].result(PATIENCE_SECONDS)
        wait_until("the directory is renamed", lambda: not directory.exists())
        if waits:
            wait_until("the directory is deleted", lambda: not list(directory.parent.glob(f"{directory.name}*")))
    # Before the agent has opened the files, they may be renamed while it opens them.
    assert swap.code == "log_changed" if moment == "opened" else swap.code in {"log_changed", "io_error", "source_gone"}
    wait_until("the directory is deleted", lambda: not list(directory.parent.glob(f"{directory.name}*")))


@pytest.fixture(scope="module")
def topic(stopping: Stopping) -> Topic:
    """A topic whose swap fails several times before it succeeds."""
    return stopping.live.topic(
        "delayed", transactions=False, **{"cleanup.policy": "compact,delete", "retention.ms": "-1"}
    )


@pytest.mark.long
def test_the_brokers_cleaner_comes_first(stopping: Stopping) -> None:
    """A-14, D-06: it replaces sources while the agent compares them with staged files.

    The log changed; the plan is right.

    If it shortens the log, the staged files have batches that the sources no longer have.
    """
    topic = stopping.live.topic("outrun", transactions=False)
    manifest = topic.stage(output_bytes=14)
    assert {len(group.sources) for group in manifest.groups} == {1}
    first = topic.directory / f"{manifest.groups[0].base:020d}.log"
    inode = first.stat().st_ino
    with stopping.at("named", topic.request(manifest)) as swap:
        topic.fill(transactions=False)
        resource = ConfigResource(
            ConfigResource.Type.TOPIC,
            topic.name,
            incremental_configs=[ConfigEntry("min.cleanable.dirty.ratio", "0", incremental_operation=SET)],
        )
        admin = AdminClient({"bootstrap.servers": topic.broker.bootstrap}, logger=SILENT)
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE_SECONDS)
        wait_until("the broker's cleaner replaces it", lambda: inode_of(first) not in {None, inode})
    assert swap.code in {"source_changed", "source_gone"}
    wait_until("its cleaning has ended", lambda: unfinished(topic) == [])
    assert topic.read() == topic.latest


def inode_of(path: Path) -> int | None:
    """None: the file is missing, as between the broker's renames."""
    with suppress(FileNotFoundError):
        return path.stat().st_ino
    return None


def test_the_log_start_moves_meanwhile(stopping: Stopping, topic: Topic) -> None:
    """U-2, A-24: noticed under the monitor; the agent undoes its steps, and the cleaner is free again.

    A-18: before the lock is taken both indexes are mapped, so that no code opens them by a former name.
    """
    manifest = topic.stage(output_bytes=6_000)
    before = topic.listing()
    admin = AdminClient({"bootstrap.servers": topic.broker.bootstrap}, logger=SILENT)
    with stopping.at("opened", topic.request(manifest, log_start=0)) as swap:
        cleaned = f"{manifest.groups[0].base:020d}"
        assert {f"{cleaned}.index.cleaned", f"{cleaned}.timeindex.cleaned"} <= mapped(topic)
        assert unfinished(topic)
        admin.delete_records([TopicPartition(topic.name, 0, 2)])[TopicPartition(topic.name, 0)].result(PATIENCE_SECONDS)
    assert swap.code == "log_start"
    assert topic.listing() == before
    with stopping.live.asking() as agent:
        assert agent.ask("log", topic=topic.name, partition=0)["cleaning"] != "paused"
        assert agent.ask("info")["failed_resumes"] == []


@pytest.mark.parametrize("kind", ["log", "index", "timeindex"])
def test_a_staged_file_is_changed_after_the_check(stopping: Stopping, topic: Topic, kind: str) -> None:
    """A-23, A-24: one byte in place, with the same size and time; moved files are moved back."""
    manifest = topic.stage(output_bytes=6_000)
    before = topic.listing()
    staged = topic.directory / ".kstage" / manifest.plan / f"{manifest.groups[0].base:020d}.{kind}"
    with stopping.at("validated", topic.request(manifest)) as swap:
        status = staged.stat()
        with staged.open("r+b") as file:
            byte = file.read(1)[0]
            file.seek(0)
            file.write(bytes([byte ^ 1]))
        os.utime(staged, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert swap.code == f"bad_{kind}"
    assert unfinished(topic) == []
    assert topic.listing() == before


def test_a_staged_log_is_removed_once_it_is_moved_in(stopping: Stopping) -> None:
    """A-18: the broker creates missing files empty, and would have a segment without records."""
    topic = stopping.live.topic("moved-in", transactions=False)
    manifest = topic.stage(output_bytes=6_000)
    before = topic.listing()
    with stopping.at("moved", topic.request(manifest)) as swap:
        (topic.directory / f"{manifest.groups[0].base:020d}.log.cleaned").unlink()
    assert swap.code == "log_changed", swap.answer
    assert unfinished(topic) == []
    assert topic.listing() == before
    assert topic.read() == topic.latest


@pytest.mark.parametrize("kind", ["log", "index", "timeindex"])
def test_the_broker_fails_inside_of_its_swap(stopping: Stopping, topic: Topic, kind: str) -> None:
    """A-24, LT-6: an I/O error between its renames.

    The log directory stays online, the old segments are served, and no file is left that a restart could treat as a
    swap.
    """
    manifest = topic.stage(output_bytes=6_000)
    before = topic.listing()
    first = manifest.groups[0].base
    with stopping.at("locked", topic.request(manifest)) as swap:
        (topic.directory / f"{first:020d}.{kind}.cleaned").unlink()
    assert (swap.code, swap.answer["done"]) == ("io_error", [])  # type: ignore[index]
    assert unfinished(topic) == []
    assert topic.listing() == before
    with stopping.live.asking() as agent:
        info = agent.ask("info")
        assert (info["log_dirs"], info["pauses"]) == ([str(topic.log_dir)], [])


@pytest.mark.long
def test_the_cleaner_keeps_its_lock(stopping: Stopping) -> None:
    """A-16: it keeps its lock, as when its disk hangs: busy after some seconds, also for queries; later no longer."""
    topic = stopping.live.topic("asleep", transactions=False)
    manifest = topic.stage(output_bytes=6_000)
    with stopping.live.asking() as agent:
        with stopping.at("asleep", topic.request(manifest)) as swap:
            begun = time.monotonic()
            with pytest.raises(RefusedError, match="the broker's cleaner has held its lock") as refused:
                agent.ask("log", topic=topic.name, partition=0)
            assert refused.value.code == "busy"
            assert 4 < time.monotonic() - begun < 60
        assert isinstance(swap.answer, dict)
        assert swap.answer["done"] == [group.base for group in manifest.groups]
        assert agent.ask("log", topic=topic.name, partition=0)["cleaning"] != "paused"
        assert agent.ask("info")["pauses"] == agent.ask("info")["failed_resumes"] == []


def test_one_swap_at_a_time_and_a_client_that_disconnects(stopping: Stopping, topic: Topic) -> None:
    """A-25: a second request for the partition is busy.

    A swap whose client has disconnected continues; a repeated request gets its response.
    """
    manifest = topic.stage(output_bytes=6_000)
    request = topic.request(manifest)
    with stopping.live.asking() as other:
        with stopping.at("opened", request) as swap:
            with pytest.raises(RefusedError) as refused:
                other.ask("swap", **request)
            assert refused.value.code == "busy"
        assert isinstance(swap.answer, dict)
        assert other.ask("swap", **request) == {**swap.answer, "repeated": True}


@pytest.mark.parametrize("ending", ["index.swap", "timeindex.cleaned"])
def test_an_unfinished_swap_stops_the_next(stopping: Stopping, ending: str) -> None:
    """U-34: a ``.swap`` of any base offset, earlier or new; no file is moved, no data is lost.

    Likewise beside a ``.cleaned`` file: a broker killed in its own swap would delete the new segment, without sources.
    """
    topic = stopping.live.topic(f"in-doubt-{ending}", transactions=False)
    manifest = topic.stage(output_bytes=6_000)
    request = topic.request(manifest)
    doubt = topic.directory / f"{manifest.groups[-1].sources[-1]:020d}.{ending}"
    staged = topic.directory / ".kstage" / manifest.plan
    before, files = topic.listing(), sorted(path.name for path in staged.iterdir())
    with stopping.live.asking() as agent:
        doubt.touch()
        with pytest.raises(RefusedError, match="was left by a swap that failed") as refused:
            agent.ask("swap", **request)
        assert refused.value.code == "busy"
        doubt.unlink()
    assert (topic.listing(), sorted(path.name for path in staged.iterdir())) == (before, files)
    with stopping.at("opened", request) as swap:
        doubt.touch()
    assert swap.code == "busy"
    doubt.unlink()
    assert topic.listing() == before
    assert unfinished(topic) == []


def test_an_upgrade_waits_for_the_swap(stopping: Stopping) -> None:
    """A-03: attach returns at once; no other swap runs beside the swap, and then the other build is there."""
    topic = stopping.live.topic("upgraded", transactions=False)
    manifest = topic.stage(output_bytes=6_000)
    live = stopping.live
    old, known = build_of(live), live.asking()
    with known, stopping.at("opened", topic.request(manifest)) as swap:
        begun = time.monotonic()
        attach(live, JAR)
        assert time.monotonic() - begun < 100
        request = topic.request(manifest, plan="20260101t000000-00000000")
        wait_until("swaps are refused because of the other build", lambda: "another build" in busy_with(known, request))
        assert build_of(live) == old, "the old build still answers"
    assert isinstance(swap.answer, dict)
    assert swap.answer["done"] == [group.base for group in manifest.groups]

    wait_until("the other build", lambda: is_another_build(live, old[0]))
    assert topic.read() == topic.latest
    new = build_of(live)
    attach(live, stopping.place.parent / "moments.jar")
    wait_until("the build that stops", lambda: is_another_build(live, new[0]))
    assert build_of(live)[0] == old[0]


def busy_with(agent: Asking, request: dict[str, Any]) -> str:
    """Why a swap is refused for now."""
    with pytest.raises(RefusedError) as refused:
        agent.ask("swap", **request)
    assert refused.value.code == "busy"
    return str(refused.value)


def outcome(topic: Topic, manifest: Manifest) -> str:
    """Whether all of the groups are new, or none of them."""
    found = topic.listing()
    sizes = {base: found[f"{base:020d}.log"][1] for base in (group.base for group in manifest.groups)}
    new = [sizes[group.base] == group.files["log"].bytes for group in manifest.groups]
    assert unfinished(topic) == []
    return "new" if all(new) else "mixed" if any(new) else "old"


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        pytest.param("opened", "old", marks=pytest.mark.long),
        ("locked", "old"),
        pytest.param("swapped", "new", marks=pytest.mark.long),
    ],
)
def test_a_broker_killed_during_swaps(stopping: Stopping, moment: str, expected: str) -> None:
    """K-2, K-3, K-5: old or new, never between; no file is left after the next start."""
    topic = stopping.live.topic(f"killed-at-{moment}", transactions=False)
    manifest = topic.stage(output_bytes=60_000)
    assert len(manifest.groups) == 1
    with stopping.at(moment, topic.request(manifest)) as swap:
        topic.broker.kill()
    assert str(swap.answer).startswith("lost")
    topic.broker.start()
    assert outcome(topic, manifest) == expected
    assert topic.read() == topic.latest


def test_the_broker_logged_no_errors(stopping: Stopping) -> None:
    """U-27: the broker's log since the last kill."""
    text = stopping.live.broker.log_text()
    assert "Kafka Server started" in text
    assert error_lines(text) == []
