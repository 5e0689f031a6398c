"""What becomes of a clean point that is told the broker's cleaner while the log becomes another one (S-50)."""

from __future__ import annotations

import shutil
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient

from cleanerd_lab.demo.broker import Broker
from tests.agent.asking import RefusedError
from tests.agent.building import stopping_build
from tests.agent.live import PROPERTIES, Live
from tests.brokers.node import error_lines, wait_until
from tests.brokers.traffic import SILENT
from tests.kafka.judge import fetch
from tests.support.log_dirs import CLEANER_CHECKPOINT, read_checkpoint
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.agent.live import Topic

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

OUTPUT_BYTES = 6_000
"""So that there are several outputs."""
CUT = """
        java.nio.file.Path cut = java.nio.file.Path.of(System.getProperty("cleanerd.test.moments"), "cut");
        if (java.nio.file.Files.exists(cut)) { // as a follower's log is, whose leader has another history
            long offset = Long.parseLong(java.nio.file.Files.readString(cut).strip());
            java.nio.file.Files.delete(cut);
            try {
                Reflect.call(Reflect.method(log.log.getClass(), "truncateTo", long.class), log.log, offset);
            } catch (NoSuchMethodException e) {
                throw new IllegalStateException(e);
            }
        }
"""
FIRST_LINE = "        String cleaning = log.cleaningState();\n"


@pytest.fixture(scope="module", params=["4.3", pytest.param("3.9", marks=pytest.mark.long)])
def stopping(request: pytest.FixtureRequest) -> Iterator[tuple[Live, Path]]:
    """A broker whose agent stops at named moments, and cuts a log that it is asked about to the offset in ``cut``."""
    jars = fetch(request.param)
    work_dir = Path(tempfile.mkdtemp(prefix=f"told-{request.param}-"))
    place = work_dir / "moments"
    place.mkdir()
    jar = stopping_build(work_dir, "LogAnswer.java", (FIRST_LINE, CUT + FIRST_LINE))
    arguments = [f"-Dcleanerd.test.moments={place}", f"-javaagent:{jar}"]
    broker = Broker(jars.libs, work_dir / "broker", version=jars.version, properties=PROPERTIES, jvm_args=arguments)
    try:
        broker.start()
        yield Live(broker), place
    finally:
        broker.kill()
        shutil.rmtree(work_dir)


def told_while(stopping: tuple[Live, Path], moment: str, request: dict[str, Any], happen: Callable[[], object]) -> Any:
    """The code of the refusal of a ``checkpoint`` that stops at ``moment`` while something happens; or the answer."""
    live, place = stopping
    answers: list[Any] = []

    def ask() -> None:
        try:
            with live.asking() as agent:
                answers.append(agent.ask("checkpoint", **request))
        except RefusedError as refused:
            answers.append(refused.code)

    stop, reached = place / f"{moment}.stop", place / f"{moment}.reached"
    stop.touch()
    thread = threading.Thread(target=ask)
    thread.start()
    try:
        wait_until("the moment", lambda: reached.exists() or not thread.is_alive())
        assert reached.exists(), answers
        happen()
    finally:
        stop.unlink()
        reached.unlink(missing_ok=True)
        thread.join()
    return answers[0]


def cleaned(live: Live, topic: Topic) -> dict[str, Any]:
    """A cleaning of all there is; returns the request that tells the broker's cleaner of it."""
    manifest = topic.stage(output_bytes=OUTPUT_BYTES)
    with live.asking() as agent:
        request = topic.request(manifest)
        agent.ask("swap", **request)
        rows = agent.ask("log", topic=topic.name, partition=0)["segments"]
    base, size, mtime_ms, inode = max(row for row in rows if row[0] < manifest.bound)
    return {
        "topic": topic.name,
        "partition": 0,
        "topic_id": request["topic_id"],
        "dir": request["dir"],
        "offset": manifest.bound,
        "clean": {"base": base, "size": size, "ino": inode, "mtime_ms": mtime_ms},
    }


def cut_and_grow(stopping: tuple[Live, Path], topic: Topic, request: dict[str, Any]) -> None:
    """Inside of the last segment that was cleaned; then it grows until the clean point lies below its end again."""
    live, place = stopping
    (place / "cut").write_text(str(request["clean"]["base"] + 1))
    with live.asking() as agent:
        assert agent.ask("log", topic=topic.name, partition=0)["leo"] == request["clean"]["base"] + 1
        topic.fill(transactions=False)
        wait_until(
            "it is as long as before",
            lambda: agent.ask("log", topic=topic.name, partition=0)["segments"][-1][0] > request["offset"],
        )


def recreate(topic: Topic) -> None:
    """A topic of the same name, at the same place."""
    log_dir = topic.log_dir
    admin = AdminClient({"bootstrap.servers": topic.broker.bootstrap}, logger=SILENT)
    admin.delete_topics([topic.name])[topic.name].result(PATIENCE_SECONDS)
    wait_until("it is gone", lambda: not list(log_dir.glob(f"{topic.name}-0*")))
    Live(topic.broker).topic(topic.name, transactions=False)


def cleaners_offset(live: Live, topic: str) -> int | None:
    """The clean point that the broker's cleaner goes by."""
    path = live.broker.log_dirs[0] / CLEANER_CHECKPOINT
    return read_checkpoint(path).get(f"{topic}-0") if path.exists() else None


@pytest.mark.parametrize("moment", ["pausing", "checkpoint"])
def test_cut_and_grown_again(stopping: tuple[Live, Path], moment: str) -> None:
    """The pause keeps no truncation away. What lies below the clean point now nobody cleaned: it must not be told."""
    live, _ = stopping
    topic = live.topic(f"cut-{moment}", transactions=False)
    request = cleaned(live, topic)
    code = told_while(stopping, moment, request, lambda: cut_and_grow(stopping, topic, request))
    assert code == "evidence_changed"
    assert cleaners_offset(live, topic.name) is None


@pytest.mark.parametrize("moment", ["pausing", "checkpoint"])
def test_deleted_and_created_again(stopping: tuple[Live, Path], moment: str) -> None:
    """The log that was looked up is gone, and another one has its name and its place."""
    live, _ = stopping
    topic = live.topic(f"recreated-{moment}", transactions=False)
    request = cleaned(live, topic)
    assert told_while(stopping, moment, request, lambda: recreate(topic)) == "log_changed"
    assert cleaners_offset(live, topic.name) is None


def test_nothing_happens(stopping: tuple[Live, Path]) -> None:
    """A-20: so that the tests before can fail: it is told. Somebody who does not say what is clean is believed, too."""
    live, _ = stopping
    topic = live.topic("told", transactions=False)
    request = cleaned(live, topic)
    assert told_while(stopping, "checkpoint", request, lambda: None) == {"offset": request["offset"]}
    assert cleaners_offset(live, topic.name) == request["offset"]
    with live.asking() as agent:
        earlier = {name: value for name, value in request.items() if name != "clean"}
        assert agent.ask("checkpoint", **{**earlier, "offset": request["clean"]["base"]})
    assert cleaners_offset(live, topic.name) == request["clean"]["base"]


def test_another_segment_than_was_cleaned(stopping: tuple[Live, Path]) -> None:
    """S-50: by any of its numbers; and a point that is there already stays."""
    live, _ = stopping
    topic = live.topic("another", transactions=False)
    request = cleaned(live, topic)
    with live.asking() as agent:
        assert agent.ask("log", topic=topic.name, partition=0)["compares_clean"] is True
        agent.ask("checkpoint", **request)
        for name in request["clean"]:
            wrong = {**request["clean"], name: request["clean"][name] + 1}
            with pytest.raises(RefusedError) as refused:
                agent.ask("checkpoint", **{**request, "clean": wrong})
            assert refused.value.code == "evidence_changed"
    assert cleaners_offset(live, topic.name) == request["offset"]


def test_nothing_of_it_was_an_error(stopping: tuple[Live, Path]) -> None:
    """U-27, R-3."""
    text = stopping[0].broker.log_text()
    assert "Kafka Server started" in text
    assert error_lines(text) == []
