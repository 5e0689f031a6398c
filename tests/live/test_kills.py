"""LT-4: broker, cleanerd or both killed around a swap: every group old or new, nothing lost, no files left."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import pytest

from tests.live.killing import AT_ONCE, ON_DISK, VICTIMS, Killing, kill_all, killing_field
from tests.support.length import at_length

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

QUICK: Final = ("cleanerd", "daemon", "broker beside the daemon", "both")
RELEASES: Final = ("4.4", "3.3", "3.9")


def kill(profile: str, seed: int, kills: int, kinds: Sequence[str] = VICTIMS, at_once: int = AT_ONCE) -> Killing:
    """Kill each victim in turn ``count`` times, then clean without kills.

    A swap is on the disk in at least half of the kills.
    """
    with killing_field(profile, random.Random(seed)) as killing:
        number = 0
        while (
            number < len(kinds)
            or killing.kills < kills
            or (2 * killing.moments[ON_DISK] < killing.kills and killing.kills < 4 * kills)
        ):
            kill_all(killing, [kinds[number % len(kinds)]], at_once)
            assert killing.wrong == []
            number += 1
    print("\n", dict(killing.reported))  # noqa: T201 - the histogram of moments is the proof
    assert 2 * killing.moments[ON_DISK] >= killing.kills, killing.moments
    return killing


@pytest.mark.parametrize(
    ("kinds", "kills"),
    [
        (("cleanerd", "daemon", "broker beside the daemon", "both"), 6),
        pytest.param(VICTIMS, 20, marks=pytest.mark.long),
    ],
    ids=["some", "each"],
)
def test_some_kills(kinds: tuple[str, ...], kills: int) -> None:
    """Each kind of kill; at least half of them with a swap on the disk.

    Readers of both isolation levels find no record lost, back, twice or out of order, of any kind of producer. They see
    no aborted or fenced transaction. No checkpoint is too high (D-08, S-50), and no files are left.
    """
    killing = kill("4.3", kills, kills, kinds, at_once=2)
    assert {f"of {what}" for what in ("cleanerd", "daemon", "broker", "both")} <= killing.moments.keys()


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("release", RELEASES)
def test_kills_of_other_releases(release: str) -> None:
    """R-2: the newest release, the oldest, and the last one with ZooKeeper."""
    kill(release, 10, 20)


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_many_kills() -> None:
    """The same with many more kills."""
    kill("4.3", 40, at_length(40))
