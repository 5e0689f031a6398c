"""Requests that the agent has to refuse without any change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.live import file_facts
from tests.agent.raw_client import RefusedError

if TYPE_CHECKING:
    from cleanerd.cleaner.manifest import Manifest, ManifestGroup
    from tests.agent.live import Topic
    from tests.agent.raw_client import Asking


def refused(topic: Topic, agent: Asking, request: dict[str, Any]) -> str:
    """The code of the refusal, after which the log is unchanged."""
    before = topic.listing()
    with pytest.raises(RefusedError) as caught:
        agent.ask("swap", **request)
    assert caught.value.answer["done"] == []
    assert caught.value.answer["error"]
    assert topic.listing() == before
    assert agent.ask("log", topic=topic.name, partition=0)["cleaning"] != "paused"
    return caught.value.code


def changed(topic: Topic, manifest: Manifest, group: ManifestGroup, files: dict[str, bytes]) -> dict[str, Any]:
    """A request for files of its own plan, with their sizes and checksums."""
    request = topic.request(manifest, (group,), plan=topic.copy_staged(group, files))
    (entry,) = request["groups"]
    facts = {kind: file_facts(data) for kind, data in files.items()}
    entry["files"] = {kind: name for kind, name in entry["files"].items() if kind in files}
    entry["sizes"] = {kind: size for kind, (size, _) in facts.items()}
    entry["crc32c"] = {kind: crc for kind, (_, crc) in facts.items()}
    return request


def answered(agent: Asking, request: dict[str, Any]) -> str:
    """The code of the refusal; done if there was none."""
    try:
        agent.ask("swap", **request)
    except RefusedError as refused:
        return refused.code if not refused.answer["done"] else "done"
    return "done"
