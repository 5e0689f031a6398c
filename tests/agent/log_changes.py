"""What an agent does to a log when a test tells it to, and how that is seen: for builds that stop (``stopping.py``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.agent.live import Live
from tests.brokers.node import names_ending, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.manifest import Manifest
    from tests.agent.live import Topic
    from tests.agent.stopping import Stopping

_DO: Final = """
        java.nio.file.Path told = java.nio.file.Path.of(System.getProperty("cleanerd.test.moments"), log + ".do");
        if (java.nio.file.Files.exists(told)) {
            String what = java.nio.file.Files.readString(told).strip();
            java.nio.file.Files.delete(told);
            try {
                if (what.equals("give up")) { // as when its disk fails
                    log.giveUp("a test", new IOException("gone"));
                } else if (what.equals("close")) { // as a broker does that stops
                    Reflect.call(Reflect.method(log.log.getClass(), "close"), log.log);
                } else { // as a follower's log is cut, whose leader has another history
                    var cut = Reflect.method(log.log.getClass(), "truncateTo", long.class);
                    Reflect.call(cut, log.log, Long.valueOf(what));
                }
            } catch (NoSuchMethodException e) {
                throw new IllegalStateException(e);
            }
        }
"""
_FIRST_LINE: Final = "        String cleaning = log.cleaningState();\n"
FOLLOWS_ITS_CONFIGURATION: Final = ("LogAnswer.java", (_FIRST_LINE, _DO + _FIRST_LINE))
"""For ``stopping_build``: asked about a log, the agent does first what :func:`tell` says."""
_REPLACED: Final = "            log.replace(output, sources);\n"
_NO_LAST_NAME: Final = """
            java.nio.file.Path told = java.nio.file.Path.of(
                    System.getProperty("cleanerd.test.moments"), log + ".no-last-name");
            if (java.nio.file.Files.exists(told)) {
                String kind = java.nio.file.Files.readString(told);
                java.nio.file.Files.delete(told);
                java.nio.file.Path last = log.dir().resolve(Group.brokerName(output.base(), kind));
                java.nio.file.Path swap = last.resolveSibling(last.getFileName() + ".swap");
                java.nio.file.Files.copy(last, swap); // the log loses its own; the broker misses none
                if (kind.equals("log")) {
                    java.nio.file.Files.move(last, swap, java.nio.file.StandardCopyOption.ATOMIC_MOVE);
                }
                throw new IOException("no last name"); // as when the disk fails at the last of the broker's renames
            }
"""
NO_LAST_NAME: Final = (_REPLACED, _REPLACED + _NO_LAST_NAME)
"""For ``Attempt.java``, so that there is :func:`swap_without_a_last_name`."""
MOVED_ON: Final = {
    "log_changed", "source_gone", "source_changed", "evidence_changed", "not_below_bound", "not_sealed",
}  # fmt: skip
"""No fault of the plan, and nothing that is asked again as it is."""


def requested(topic: Topic) -> dict[str, Any]:
    """What the agent says of it."""
    with Live(topic.broker).asking() as agent:
        return agent.ask("log", topic=topic.name, partition=0)


def tell(stopping: Stopping, topic: Topic, what: str) -> dict[str, Any]:
    """``give up``: as when its disk fails; ``close``; or an offset to cut it to. What is said of it after that."""
    (stopping.place / f"{topic.name}-0.do").write_text(what)
    return requested(topic)


def cut(stopping: Stopping, topic: Topic, offset: int) -> None:
    """To ``offset``; then it grows beyond where it ended."""
    end = requested(topic)["leo"]
    assert tell(stopping, topic, str(offset))["leo"] == offset
    while requested(topic)["segments"][-1][0] <= end:
        topic.fill(transactions=False)


def released(stopping: Stopping, topic: Topic) -> None:
    """Nothing is left of the swap, on the disk or in the broker's cleaner."""
    wait_until("the old files are gone", lambda: not names_ending(topic.broker.log_dirs, ".deleted"))
    # The broker's own cleaner may have the new log at work: its files go by themselves, what we left would stay.
    wait_until("no file of a swap is left", lambda: not names_ending([topic.directory], ".cleaned", ".swap"))
    with stopping.live.asking() as agent:
        wait_until("it is free", lambda: agent.ask("log", topic=topic.name, partition=0)["cleaning"] != "paused")
        reported = agent.ask("info")
        assert (reported["pauses"], reported["failed_resumes"]) == ([], [])


def swap_without_a_last_name(stopping: Stopping, topic: Topic, manifest: Manifest, kind: str = "log") -> None:
    """The first group's new segment is in, the sources are put aside, and a file of it goes by ``.swap``."""
    group = manifest.groups[0]
    (stopping.place / f"{topic.name}-0.no-last-name").write_text(kind)
    with stopping.live.asking() as agent:
        answer = agent.ask("swap", **topic.request(manifest, (group,)))
    assert answer["done"] == [group.base]
    assert "no last name" in str(answer["warnings"])
    assert (topic.directory / f"{group.base:020d}.{kind}.swap").exists(), "U-26"


def topic_in(stopping: Stopping, log_dir: Path, name: str, *, transactions: bool = False) -> Topic:
    """A new topic whose partition lies there: the broker puts the next one where it has the fewest."""
    topics = (
        stopping.live.topic(f"{name}-in-{log_dir.name}-{number}", transactions=transactions) for number in range(6)
    )
    return next(each for each in topics if each.log_dir == log_dir)
