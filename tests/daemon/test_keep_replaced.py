"""The daemon keeps replaced segments, as many and as long as the settings allow (S-40)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.config.load import load_settings
from cleanerd.daemon.work.backup_limits import BackupLimits
from cleanerd.host.clock import Clock, LastTime, wall_ms
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.kept_segments import KeptSegments
from tests.daemon import service
from tests.daemon.service import assignments, broker, is_clean, partition, serve, until
from tests.swap.live_round import clean_beside, content, running, undo_offline

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.service import Service


@pytest.fixture
def kept(root: Path) -> Path:
    (root.parent / "kept").mkdir()
    return root.parent / "kept"


def entries(root: Path) -> list[str]:
    return [str(entry.name) for entry in KeptSegments(root.parent / "state").entries()]


def test_a_cleaning_of_the_daemon_can_be_undone(root: Path, kept: Path) -> None:
    """At the broker's next stop; of several directories, the one on the log's file system is used."""
    places = f"{root.parent / 'nowhere'},{kept}"
    with broker(root, 2) as agent:
        before = content(root)

        async def story(service: Service) -> None:
            await until("clean", lambda: all(is_clean(service.view(), 8, f"orders-{n}") for n in range(2)))

        serve(assignments(root, cleanerd_keep_replaced_dir=places), story)
        assert len(agent.requested("swap")) == 4
    assert sorted(entries(root)) == ["orders-0", "orders-1"]
    assert content(root) != before
    for _ in range(2):
        assert undo_offline(root).outcome == "undone"
    assert content(root) == before
    assert list(kept.iterdir()) == []


@pytest.mark.parametrize("off_ms", [-86_400_000, 86_400_000, 0])
def test_a_clock_in_doubt(root: Path, kept: Path, off_ms: int) -> None:
    """U-42: with a clock that is a day behind, they would be too old as soon as it is set right."""
    known = wall_ms()
    clock = Clock(lambda: known + off_ms, lambda: 0, last=LastTime("", 0, known))
    settings = load_settings(assignments=[f"cleanerd.keep.replaced.dir={kept}"])
    with running(root) as agent:
        place = BackupLimits(StateStore(root.parent / "state"), clock).place(read_log_dir(root), settings)
        assert clean_beside(agent, keep=place).outcome == "cleaned"
    (entry,) = KeptSegments(root.parent / "state").entries()
    assert entry.cleaned_ms == max(known, known + off_ms)


@pytest.mark.long
def test_nothing_is_replaced_if_it_cannot_be_kept(root: Path, kept: Path) -> None:
    """The operator requires undo: cleanings are refused, with the reason, until the directory exists."""
    with broker(root) as agent:

        async def story(service: Service) -> None:
            reason = f"cleanerd.keep.replaced.dir={root.parent / 'late'}: does not exist"
            await until("it is refused", lambda: reason in partition(service.view()).reason)
            assert not agent.requested("swap")
            (root.parent / "late").mkdir()
            await until("clean", lambda: is_clean(service.view(), 8))

        serve(assignments(root, cleanerd_keep_replaced_dir=str(root.parent / "late")), story)
    assert entries(root) == ["orders-0"]


def test_more_than_the_limit_is_not_kept(root: Path, kept: Path) -> None:
    """It is cleaned nevertheless, and its result reports it."""
    with broker(root):

        async def story(service: Service) -> None:
            await until("clean", lambda: is_clean(service.view(), 8))
            (note,) = service.view().history[0].result["notes"]
            assert note.startswith("the replaced segments are not kept, so the cleaning cannot be undone: it is ")

        serve(
            assignments(root, cleanerd_keep_replaced_dir=str(kept), cleanerd_keep_replaced_retention_bytes="1"), story
        )
    assert entries(root) == []
    assert list(kept.iterdir()) == []


def test_the_oldest_is_deleted_first(root: Path, kept: Path) -> None:
    """Four partitions that replace the same size, and space for two."""
    size = sum(len(path.read_bytes()) for path in _made(root))
    with service.held(root), service.FakeAgent(root, root / ".cleanerd-agent.sock"):

        async def story(service: Service) -> None:
            await until("clean", lambda: service.view().totals.cleanings.get("cleaned") == 4)

        limits = {"cleanerd_keep_replaced_retention_bytes": str(int(size * 2.9)), "log_cleaner_threads": "1"}
        serve(assignments(root, cleanerd_keep_replaced_dir=str(kept), **limits), story)
    assert 1 <= len(entries(root)) < 4
    kept_bytes = sum(entry.kept_bytes for entry in KeptSegments(root.parent / "state").entries())
    assert kept_bytes <= size * 2.9 + size


def _made(root: Path) -> list[Path]:
    """The segments of one of four partitions that a cleaning replaces."""
    made = {f"orders-{n}": service.two_groups() for n in range(4)}
    service.make_log_dir(root, made, clean_shutdown=False)
    return [root / "orders-0" / f"{base:020d}.log" for base in (0, 5)]


def test_kept_segments_that_are_too_old_are_removed(root: Path, kept: Path) -> None:
    """Without any cleaning: nothing is dirty any more."""
    with broker(root):
        settings = assignments(root, cleanerd_keep_replaced_dir=str(kept))

        async def story(service: Service) -> None:
            await until("clean", lambda: is_clean(service.view(), 8))

        serve(settings, story)
        assert entries(root) == ["orders-0"]

        async def swept(_service: Service) -> None:
            await until("it is deleted", lambda: not entries(root))

        serve([*settings, "cleanerd.keep.replaced.retention.ms=0"], swept)
    assert list(kept.iterdir()) == []


def test_a_staged_cleaning_names_the_directory_where_apply_keeps(root: Path, kept: Path) -> None:
    """Replaced segments of a staged cleaning are kept by ``apply``, in the same way."""
    with broker(root):

        async def story(_service: Service) -> None:
            await until("it is staged", lambda: bool(list(root.rglob("ready.json"))))

        serve(assignments(root, cleanerd_keep_replaced_dir=str(kept), cleanerd_mode="on-start"), story)
    (ready,) = root.rglob("ready.json")
    assert str(kept) in ready.read_text()
