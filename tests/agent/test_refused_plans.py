"""Plans that do not fit the log, or contain false facts; the broker itself would execute all of them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.raw_client import RefusedError
from tests.agent.refused_requests import answered, refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.cleaner.manifest import Manifest, ManifestGroup
    from tests.agent.live import Live, Topic
    from tests.agent.raw_client import Asking

pytestmark = [pytest.mark.kafka, pytest.mark.broker]


def in_group(member: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda request: request["groups"][0].__setitem__(member, value)


def end_beyond(*, a_witness_behind: bool) -> Callable[[dict[str, Any]], None]:
    """Whether an entry is after the fixture's group depends on the segment borders; in this case none is."""

    def lie(request: dict[str, Any]) -> None:
        (group,) = request["groups"]
        witnesses = [row for row in request["witnesses"] if row["base"] <= group["sources"][-1]["base"]]
        behind = [{**witnesses[-1], "base": group["end"]}] if a_witness_behind else []
        request["witnesses"] = [*witnesses, *behind]
        group["end"] = 10**9

    return lie


def in_source(member: str, change: int) -> Callable[[dict[str, Any]], None]:
    """The same false fact about the first source in both places."""

    def lie(request: dict[str, Any]) -> None:
        (base,) = {request["groups"][0]["sources"][0]["base"]}
        for row in (*request["witnesses"], request["groups"][0]["sources"][0]):
            if row["base"] == base:
                row[member] += change

    return lie


def skip_a_witness(request: dict[str, Any]) -> None:
    bases = {source["base"] for group in request["groups"] for source in group["sources"]}
    position = next(i for i, row in enumerate(request["witnesses"]) if i and row["base"] not in bases)
    del request["witnesses"][position]


def evidence(member: str) -> Callable[[dict[str, Any]], None]:
    """A segment outside of the group's sources has changed."""

    def lie(request: dict[str, Any]) -> None:
        bases = {source["base"] for source in request["groups"][0]["sources"]}
        row = next(row for row in request["witnesses"] if row["base"] not in bases)
        row[member] += 1

    return lie


def a_witness_between(request: dict[str, Any]) -> None:
    request["witnesses"].insert(1, {**request["witnesses"][0], "base": request["witnesses"][0]["base"] + 1})


PLANS: dict[str, tuple[str, Callable[[dict[str, Any]], None]]] = {
    "source size": ("source_changed", in_source("size", 1)),
    "source inode": ("source_changed", in_source("ino", 1)),
    "source time": ("source_changed", in_source("mtime_ms", 1)),
    "evidence size": ("evidence_changed", evidence("size")),
    "evidence inode": ("evidence_changed", evidence("ino")),
    "evidence time": ("evidence_changed", evidence("mtime_ms")),
    "a segment vanished": ("evidence_changed", a_witness_between),
    "a segment appeared": ("evidence_changed", skip_a_witness),
    "base": ("bad_plan", in_group("base", 7)),
    "end": ("not_below_bound", end_beyond(a_witness_behind=False)),
    "end behind the next witness": ("bad_plan", end_beyond(a_witness_behind=True)),
    "topic id": ("topic_id", lambda request: request.__setitem__("topic_id", "AAAAAAAAAAAAAAAAAAAAAA")),
    "no topic id": ("topic_id", lambda request: request.__setitem__("topic_id", None)),
    "directory": ("log_changed", lambda request: request.__setitem__("dir", "/etc")),
    "partition": ("no_log", lambda request: request.__setitem__("partition", 1)),
    "topic": ("no_log", lambda request: request.__setitem__("topic", "nobody")),
    "plan id": ("bad_plan", lambda request: request.__setitem__("plan", "../../x")),
    "log start": ("log_start", lambda request: request.__setitem__("log_start", 1)),
    "unknown member": ("bad_request", lambda request: request.__setitem__("force", True)),
    "no groups": ("bad_request", lambda request: request.__setitem__("groups", [])),
    "no sources": ("bad_request", in_group("sources", [])),
    "no index": ("bad_request", lambda request: request["groups"][0]["files"].pop("index") and None),
    "checkpoint": ("bad_plan", lambda request: request.__setitem__("checkpoint", 10**9)),
    "negative": ("bad_request", in_group("base", -1)),
    "text for a number": ("bad_request", in_group("end", "7")),
}


@pytest.mark.parametrize(("code", "change"), PLANS.values(), ids=PLANS.keys())
def test_plans_that_do_not_fit(
    topic: Topic,
    manifest: Manifest,
    group: ManifestGroup,
    agent: Asking,
    code: str,
    change: Callable[[dict[str, Any]], None],
) -> None:
    """A-13, A-14, U-2, U-3: a source, another precondition, the topic or the directory differs."""
    request = topic.request(manifest, (group,))
    change(request)
    assert refused(topic, agent, request) == code


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of every number, text and null of a request."""
    if isinstance(value, dict):
        return [leaf for name, part in value.items() for leaf in leaves(part, (*path, name))]
    if isinstance(value, list):
        return [leaf for number, part in enumerate(value) for leaf in leaves(part, (*path, number))]
    return [path]


def others(value: Any) -> list[Any]:
    """Values to put there instead."""
    if isinstance(value, int):
        return [value + 1, value - 1, value + 2**31, -1, str(value), None]
    if isinstance(value, str):
        return [value + "x", value[:-1], value.upper() if value.upper() != value else value.lower(), 1, None]
    return []


def test_every_changed_field_of_a_request_is_refused(topic: Topic, manifest: Manifest, agent: Asking) -> None:
    """A-14, A-23, U-3: every number and text of a plan is changed in turn; each change is refused.

    Fields that cannot be wrong by themselves are left out: without a log start or checkpoint they are not checked.
    """
    sound = topic.request(manifest)
    before = topic.listing()
    codes = set()
    for path in leaves(sound):
        *way, last = path
        for value in others(_at(sound, path)):
            request = copy.deepcopy(sound)
            _at(request, tuple(way))[last] = value
            codes.add(answered(agent, request))
    assert topic.listing() == before
    assert not codes & {"internal", "done"}
    assert codes >= {"bad_plan", "bad_request", "bad_log", "no_staged_file", "topic_id", "log_changed"}


def _at(request: dict[str, Any], path: tuple[Any, ...]) -> Any:
    found: Any = request
    for step in path:
        found = found[step]
    return found


def test_sources_must_be_neighbours(topic: Topic, manifest: Manifest, agent: Asking) -> None:
    """A-14: a segment between two sources would stay, below its new neighbour's end."""
    group = next(group for group in manifest.groups if len(group.sources) > 2)
    request = topic.request(manifest, (group,))
    del request["groups"][0]["sources"][1]
    assert refused(topic, agent, request) == "bad_plan"


def test_groups_must_ascend(topic: Topic, manifest: Manifest, agent: Asking) -> None:
    """S-30: in the other order a deleted key could come back."""
    request = topic.request(manifest)
    request["groups"].reverse()
    assert refused(topic, agent, request) == "bad_plan"


def test_the_active_segment_is_refused(topic: Topic, manifest: Manifest, agent: Asking) -> None:
    """S-06: the segment that is written to is never swapped, nor a precondition."""
    active = agent.ask("log", topic=topic.name, partition=0)["segments"][-1]
    request = topic.request(manifest)
    last = dict(zip(("base", "size", "mtime_ms", "ino"), active, strict=True))
    listed = agent.ask("log", topic=topic.name, partition=0)["segments"]
    request["witnesses"] = [
        {"base": base, "size": size, "mtime_ms": time, "ino": inode} for base, size, time, inode in listed
    ]
    assert refused(topic, agent, request) == "not_sealed"
    request["groups"] = [{**request["groups"][-1], "base": last["base"], "end": last["base"] + 1000, "sources": [last]}]
    assert refused(topic, agent, request) in {"not_sealed", "not_below_bound"}


def test_paused_by_another_connection(topic: Topic, manifest: Manifest, agent: Asking, live: Live) -> None:
    """A-16, A-26: busy while another connection holds a pause, and no longer after it disconnects."""
    with live.asking() as other:
        assert other.ask("pause", topic=topic.name, partition=0) == {"paused": True}
        assert agent.ask("info")["pauses"] == [f"{topic.name}-0"]
        before = topic.listing()
        with pytest.raises(RefusedError) as caught:
            agent.ask("swap", **topic.request(manifest))
        assert (caught.value.code, topic.listing()) == ("busy", before)
    while agent.ask("info")["pauses"]:
        pass
    assert agent.ask("log", topic=topic.name, partition=0)["cleaning"] != "paused"
