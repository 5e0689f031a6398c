"""The broker's cleaner swaps a segment between two phases of a cleaning: cleanerd plans again, then skips (D-06).

Offline, staged and live the outcome is the same: no quarantine, no failure, and a decision about the old file is never
applied to the new one.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from cleanerd import _kernel
from cleanerd.cleaner.result import CleaningResult, exit_code
from cleanerd.errors import KernelError
from cleanerd.format.names import parse_topic_partition_dir
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.round import stage_partition
from tests.cleaner.driver import NAME, AfterDecision, clean, resources, scratch
from tests.support.log_dirs import make_log_dir
from tests.swap.live_round import clean_beside, content, held, running
from tests.swap.offline_round import TOPIC, batch, force, two_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WAYS = ("offline", "stage", "live")
NEWEST = {b"a": b"3", b"b": b"2", b"c": b"1"}


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


def round_of(way: str, root: Path, decided: Callable[[], object]) -> CleaningResult:
    """Clean :func:`two_groups` once in that way. ``decided`` is called after the decision."""
    progress = AfterDecision(decided)
    if way == "live":
        with running(root) as agent:
            return clean_beside(agent, progress=progress)
    make_log_dir(root, {NAME: two_groups()})
    if way == "offline":
        return clean(root, force(), TOPIC, progress=progress)
    with held(root):
        name = parse_topic_partition_dir(NAME)
        assert name is not None
        store = StateStore(root.parent / "state")
        return stage_partition(read_log_dir(root), store, resources(), name, TOPIC, force(unclean=True), progress)


def other_segment(root: Path, number: int) -> None:
    """Segment 0 as Kafka's cleaner writes it: fewer records, the same time, another file of the same name.

    The first decision bit says "remove"; in the new file it would hit a retained record.
    """
    path = root / NAME / f"{0:020d}.log"
    status = path.stat()
    new = path.with_suffix(".made")
    new.write_bytes(batch(2, ("c", "1")) if number % 2 else batch(1, ("b", "1"), ("c", "1")))
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    (path.parent / f"{0:020d}.index").unlink(missing_ok=True)
    (path.parent / f"{0:020d}.timeindex").unlink(missing_ok=True)
    new.rename(path)


class Swapped:
    """In the first ``times`` attempts another segment 0 appears after the decision; ``met`` counts them."""

    def __init__(self, root: Path, times: int) -> None:
        self.met = 0
        self._root = root
        self._times = times

    def __call__(self) -> None:
        if self.met < self._times:
            self.met += 1
            other_segment(self._root, self.met)


@pytest.mark.parametrize("way", WAYS)
def test_one_swap_of_the_broker_leads_to_a_new_plan(way: str, root: Path) -> None:
    """A new plan with the present files; by the old bits a retained record would be removed."""
    swapped = Swapped(root, 1)
    result = round_of(way, root, swapped)
    assert swapped.met == 1
    assert result.outcome == ("staged" if way == "stage" else "cleaned"), result.reason
    newest = {key: value for _, key, value in content(root) if key != b"big"}
    assert newest == NEWEST


@pytest.mark.parametrize("way", WAYS)
def test_a_broker_that_always_swaps_first_is_skipped(way: str, root: Path) -> None:
    """Skipped, with the reason; no quarantine, and exit code 0."""
    swapped = Swapped(root, 100)
    result = round_of(way, root, swapped)
    assert 1 < swapped.met < 10
    assert (result.outcome, result.moved_on) == ("skipped", True)
    assert "changed" in result.reason
    assert exit_code([result]) == 0
    states = [json.loads(path.read_text()) for path in (root.parent / "state" / "partitions").rglob("*.json")]
    assert not [state for state in states if state["quarantine"]]
    assert not list((root / NAME).glob(".kstage/*"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("raised", [_kernel.InvalidCallError("no such bit"), _kernel.KernelBugError("a panic")])
def test_an_error_of_the_kernel_fails_one_partition(way: str, raised: Exception, root: Path) -> None:
    """OP-10: a kernel error fails one partition with its reason; it is not an exception of the whole command."""

    def refuses() -> None:
        raise raised

    result = round_of(way, root, refuses)
    assert result.outcome == "quarantined"
    assert isinstance(result.error, KernelError)
    assert "please report it" in result.reason
    assert exit_code([result]) == 1


@pytest.mark.parametrize("way", WAYS)
def test_no_memory(way: str, root: Path) -> None:
    """U-38, OP-10: one partition fails without quarantine; the others are cleaned, and its memory is released."""

    def refuses() -> None:
        raise MemoryError

    result = round_of(way, root, refuses)
    assert (result.outcome, exit_code([result])) == ("failed", 1)
    assert "no memory is left" in result.reason
    assert result.error is not None
    assert isinstance(result.error.__cause__, MemoryError)
    assert result.error.__traceback__ is result.error.__cause__.__traceback__ is None
    assert not list((root.parent / "state").rglob("*.json"))
