"""The text of ``/status`` is made again only where it changed, and is not kept for a single request."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from cleanerd.daemon.http.status_body import REGULAR_SECONDS, StatusBody
from cleanerd.daemon.view import PartitionView
from tests.daemon.views import partition, view


class Counted(PartitionView):
    """Counts how often its text is made."""

    made = 0

    def to_json(self) -> dict[str, Any]:
        Counted.made += 1
        return super().to_json()


def counted(plain: PartitionView) -> Counted:
    Counted.made = 0
    return Counted(**{each.name: getattr(plain, each.name) for each in fields(plain)})


@pytest.mark.parametrize(
    ("pauses", "made"), [((1, 1, 1), 2), ((REGULAR_SECONDS, 1), 2), ((REGULAR_SECONDS + 1, REGULAR_SECONDS + 1), 3)]
)
def test_texts_are_kept_for_regular_requests(pauses: tuple[float, ...], made: int) -> None:
    """The second request within a minute keeps them; with 20,000 partitions they take 18 MiB."""
    now = 1000.0
    body = StatusBody(lambda: now)
    shown = view(partitions=(counted(partition()),))
    texts = [body.plain(shown)]
    for pause in pauses:
        now += pause
        texts.append(body.plain(shown))
    assert Counted.made == made
    assert len(set(texts)) == 1


def test_requests_of_an_unchanged_view_are_regular_ones() -> None:
    """They are answered from the cached body, and were not counted."""
    now = 1000.0
    body = StatusBody(lambda: now)
    first = view(partitions=(counted(partition()),))
    for shown in (first, first, replace(first, made_ms=first.made_ms + 1), replace(first, made_ms=first.made_ms + 2)):
        body.of(shown)
        now += REGULAR_SECONDS * 2 / 3
    assert Counted.made == 2
