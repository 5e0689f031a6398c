"""Log changes that an agent makes at a test's command, and checks of them, in builds that stop (``stopping.py``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.agent.live import Live
from tests.agent.raw_client import RefusedError
from tests.brokers.node import names_ending, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.manifest import Manifest
    from tests.agent.live import Topic
    from tests.agent.stopping import Stopping

_DO: Final = """
        java.nio.file.Path command = java.nio.file.Path.of(System.getProperty("cleanerd.test.moments"), log + ".do");
        if (java.nio.file.Files.exists(command)) {
            String what = java.nio.file.Files.readString(command).strip();
            java.nio.file.Files.delete(command);
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
"""For ``stopping_build``: at a query about a log, the agent first executes the command of :func:`command_agent`."""
_REPLACED: Final = "            log.replace(output, sources);\n"
_NO_LAST_NAME: Final = """
            java.nio.file.Path command = java.nio.file.Path.of(
                    System.getProperty("cleanerd.test.moments"), log + ".no-last-name");
            if (java.nio.file.Files.exists(command)) {
                String kind = java.nio.file.Files.readString(command);
                java.nio.file.Files.delete(command);
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
"""For ``Attempt.java``, so that :func:`swap_without_a_last_name` works."""
MOVED_ON: Final = {
    "log_changed", "source_gone", "source_changed", "evidence_changed", "not_below_bound", "not_sealed",
}  # fmt: skip
"""Not a fault of the plan, and the same request is not repeated."""


def requested(topic: Topic) -> dict[str, Any]:
    """The agent's answer."""
    with Live(topic.broker).asking() as agent:
        return agent.ask("log", topic=topic.name, partition=0)


def command_agent(stopping: Stopping, topic: Topic, what: str) -> dict[str, Any]:
    """Make the agent do ``give up``, as after a disk error, ``close``, or truncate to an offset.

    Returns its next answer.
    """
    (stopping.place / f"{topic.name}-0.do").write_text(what)
    return requested(topic)


def cut(stopping: Stopping, topic: Topic, offset: int) -> None:
    """Truncate to ``offset``; then write beyond the former end."""
    end = requested(topic)["leo"]
    assert command_agent(stopping, topic, str(offset))["leo"] == offset
    while requested(topic)["segments"][-1][0] <= end:
        topic.fill(transactions=False)


def released(stopping: Stopping, topic: Topic) -> None:
    """No file of the swap is left on the disk, and the broker's cleaner has no state of it."""
    wait_until("the old files are gone", lambda: not names_ending(topic.broker.log_dirs, ".deleted"))
    # The broker's own cleaner may be cleaning the new log: its files disappear by themselves, cleanerd's would stay.
    wait_until("no file of a swap is left", lambda: not names_ending([topic.directory], ".cleaned", ".swap"))
    with stopping.live.asking() as agent:
        wait_until(
            "the cleaner is not paused", lambda: agent.ask("log", topic=topic.name, partition=0)["cleaning"] != "paused"
        )
        reported = agent.ask("info")
        assert (reported["pauses"], reported["failed_resumes"]) == ([], [])


def swap_without_a_last_name(stopping: Stopping, topic: Topic, manifest: Manifest, kind: str = "log") -> None:
    """The first group's new segment is in, the sources are renamed, and one of its files still ends in ``.swap``."""
    group = manifest.groups[0]
    (stopping.place / f"{topic.name}-0.no-last-name").write_text(kind)
    answers: list[dict[str, Any]] = []

    def swapped() -> bool:
        try:
            with stopping.live.asking() as agent:
                answers.append(agent.ask("swap", **topic.request(manifest, (group,))))
        except RefusedError as error:  # the broker's cleaner looks for segments below the log start now and then
            if error.code != "busy":
                raise
        return bool(answers)

    wait_until("the broker's cleaner is not at the partition", swapped)
    (answer,) = answers
    assert answer["done"] == [group.base]
    assert "no last name" in str(answer["warnings"])
    assert (topic.directory / f"{group.base:020d}.{kind}.swap").exists(), "U-26"


def topic_in(stopping: Stopping, log_dir: Path, name: str, *, transactions: bool = False) -> Topic:
    """A new topic whose partition is there: the broker puts the next one where it has the fewest."""
    topics = (
        stopping.live.topic(f"{name}-in-{log_dir.name}-{number}", transactions=transactions) for number in range(6)
    )
    return next(each for each in topics if each.log_dir == log_dir)
