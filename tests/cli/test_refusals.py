"""Every refusal in every mode: ``plan`` and ``explain`` promise nothing that clean, clean --live or stage refuses.

And the other way round: what is cleaned, was promised. The daemon sees the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

from cleanerd.daemon.looking.log_dir_look import LookContext
from cleanerd.daemon.looking.log_dir_looker import LogDirLooker
from cleanerd.daemon.partition_look import FailedLook, PartitionLook
from cleanerd.format.names import uuid_to_base64
from cleanerd.log.clean_point import StateStore
from cleanerd.settings import load_settings
from tests.apply.live_scene import held
from tests.cli.clean_log_dirs import NOW, Shell, batch, dirty, write_metadata
from tests.support.bombs import zeros_batch
from tests.support.fake_agent import FakeAgent
from tests.support.log_dirs import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARKS,
    Partition,
    make_log_dir,
    write_checkpoint,
    write_partition,
)
from tests.support.logs import Record, encode_batch, encode_legacy
from tests.support.overflow import NOW_MS as OVERFLOW_NOW
from tests.support.overflow import overflowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Mode = Literal["offline", "on-start", "live"]
MODES: Final[tuple[Mode, ...]] = ("offline", "on-start", "live")
POLICY: Final = "topics.orders.cleanup.policy=compact"
MIB: Final = 1024 * 1024


@dataclass
class Scene:
    """One partition, ``orders-0``, in one mode."""

    root: Path
    path: Path
    mode: Mode
    agent: FakeAgent | None
    open: contextlib.ExitStack

    @property
    def partition(self) -> Path:
        """Its directory."""
        return self.path / "orders-0"

    def broker_says(self, **facts: Any) -> None:
        """What a running broker that is asked says otherwise."""
        if self.agent is not None:
            self.agent.facts |= facts

    def topic(self, **settings: str) -> None:
        """The topic's configuration; keys with underscores."""
        told = {"cleanup.policy": "compact"} | {key.replace("_", "."): value for key, value in settings.items()}
        write_metadata(self.path, topics={"orders": told})
        if self.agent is not None:
            self.agent.settings |= told


@dataclass(frozen=True)
class Case:
    """A state of the partition, and in which modes what is said against cleaning it; in all others it is cleaned.

    ``exact``: only who reads every record finds out. ``unseen``: the daemon only finds out when it begins.
    """

    name: str
    prepare: Callable[[Scene], None]
    refused: dict[Mode, str]
    partition: Callable[[], Partition] = dirty
    settings: tuple[str, ...] = (POLICY,)
    exact: bool = False
    unseen: bool = False
    now_ms: int = NOW
    options: tuple[str, ...] = ()


def everywhere(words: str) -> dict[Mode, str]:
    return dict.fromkeys(MODES, words)


def nothing(_scene: Scene) -> None:
    """All is well."""


def is_moved(scene: Scene) -> None:
    other = make_log_dir(scene.root / "other", {})
    write_partition(other / f"orders-0.{'0123456789abcdef' * 2}-future", dirty())
    (scene.root / "server.properties").write_text(f"log.dirs={scene.path},{other}\n")
    scene.broker_says(future=True)


def was_created_again(scene: Scene) -> None:
    other = uuid.UUID(int=7)
    write_metadata(scene.path, topics={"orders": {"cleanup.policy": "compact"}}, ids={"orders": other})
    scene.broker_says(topic_id=uuid_to_base64(other))


def is_tiered(scene: Scene) -> None:
    scene.topic(remote_storage_enable="true")


def has_remote_segments(scene: Scene) -> None:
    scene.broker_says(remote=True)


def is_deleted(scene: Scene) -> None:
    scene.broker_says(deleted=True)


def is_not_compacted(scene: Scene) -> None:
    scene.topic(cleanup_policy="delete")


def has_a_bad_setting(scene: Scene) -> None:
    scene.topic(min_cleanable_dirty_ratio="7")


def has_a_swap_file(scene: Scene) -> None:
    (scene.partition / f"{0:020d}.log.swap").write_bytes(b"")


def was_killed(scene: Scene) -> None:
    (scene.path / CLEAN_SHUTDOWN).unlink(missing_ok=True)


def has_no_high_watermarks(scene: Scene) -> None:
    scene.broker_says(hw=7, lso=7, leo=7)
    (scene.path / HIGH_WATERMARKS).unlink()


def is_clean(scene: Scene) -> None:
    write_checkpoint(scene.path / CLEANER_CHECKPOINT, {"orders-0": 6})


def is_clean_enough(scene: Scene) -> None:
    write_checkpoint(scene.path / CLEANER_CHECKPOINT, {"orders-0": 4})


def has_an_open_transaction() -> Partition:
    data = encode_batch([Record(b"a", b"1", NOW)], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    return Partition({0: data, 1: batch(1, ("a", "2")), 2: b""})


def the_broker_says_so_too(scene: Scene) -> None:
    scene.broker_says(lso=0)


def is_damaged(scene: Scene) -> None:
    log = scene.partition / f"{0:020d}.log"
    status = log.stat()
    log.write_bytes(log.read_bytes()[:-1] + b"\xff")
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))


def has_garbage(scene: Scene) -> None:
    if scene.agent is not None:  # a real one does not read that file
        said = scene.agent.do_log({"topic": "orders", "partition": 0})
        vars(scene.agent)["do_log"] = lambda _request: said
    (scene.partition / "leader-epoch-checkpoint").write_text("x")


def holds_old_messages() -> Partition:
    old = b"".join(encode_legacy(offset, b"a", b"1") for offset in range(3))
    return Partition({0: old, 3: batch(3, ("a", "9")), 4: b""})


def holds_a_bomb() -> Partition:
    return Partition({0: zeros_batch(0, 4 * MIB), 1: batch(1, ("a", "9")), 2: b""})


def has_no_directory_of_ours(scene: Scene) -> None:
    (scene.partition / ".kstage").write_text("what is this?")


def is_claimed(scene: Scene) -> None:
    (scene.partition / ".kstage").mkdir()
    claim = os.open(scene.partition / ".kstage" / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    scene.open.callback(os.close, claim)
    fcntl.flock(claim, fcntl.LOCK_EX)


def is_open_elsewhere(scene: Scene) -> None:
    """As by a broker that holds no lock; where one runs, every segment is."""
    active = str(scene.partition / f"{6:020d}.log")
    holds = f"import sys; file = open({active!r}, 'ab'); print(flush=True); sys.stdin.read()"
    holder = subprocess.Popen([sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin is not None
    assert holder.stdout is not None
    scene.open.callback(holder.wait)
    scene.open.callback(holder.stdout.close)
    scene.open.callback(holder.stdin.close)
    holder.stdout.readline()


CASES: Final = (
    Case("U-29: nothing speaks against it", nothing, {}),
    Case(
        "S-21: it is being moved",
        is_moved,
        everywhere("being moved to another log directory"),
        settings=(POLICY, "cleanerd.broker.properties={root}/server.properties"),
    ),
    Case(
        "U-23: an older topic of that name",
        was_created_again,
        {"offline": "created again", "on-start": "created again", "live": "created again"},
    ),
    Case("S-49: tiered", is_tiered, everywhere("remote.storage.enable is set")),
    Case("A-13: segments elsewhere", has_remote_segments, {"live": "remote storage"}),
    Case("A-13: being deleted", is_deleted, {"live": "being deleted"}),
    Case("not compacted", is_not_compacted, everywhere("cleanup.policy is"), settings=()),
    Case(
        "U-24: nobody says that it is compacted",
        nothing,
        {"offline": "unknown", "on-start": "unknown"},
        settings=(),
    ),
    Case("U-24: a setting that Kafka would not take", has_a_bad_setting, everywhere("min.cleanable.dirty.ratio")),
    Case("S-21: a replacement that is not ours", has_a_swap_file, everywhere(".log.swap")),
    Case("S-27: not stopped cleanly", was_killed, {"offline": "not stopped cleanly"}, unseen=True),
    Case(
        "C-86: no high watermarks",
        has_no_high_watermarks,
        {"offline": "no high watermark is known", "on-start": "no high watermark is known"},
    ),
    Case("C-16: nothing is dirty", is_clean, everywhere("nothing to clean")),
    Case(
        "C-11: clean enough",
        is_clean_enough,
        everywhere("is not above min.cleanable.dirty.ratio"),
        settings=(POLICY, "topics.orders.min.cleanable.dirty.ratio=0.9"),
    ),
    Case(
        "C-05: too young",
        nothing,
        everywhere("min.compaction.lag.ms"),
        settings=(POLICY, f"topics.orders.min.compaction.lag.ms={2**62}"),
    ),
    Case(
        "S-04: an open transaction",
        the_broker_says_so_too,
        everywhere("an open transaction"),
        partition=has_an_open_transaction,
    ),
    Case(
        "U-8: the broker's cleaner is not kept away",
        nothing,
        everywhere("cleanerd delegate"),
        settings=(POLICY, "topics.orders.compaction.strategy=timestamp"),
    ),
    Case("a file that is garbage", has_garbage, everywhere("leader-epoch-checkpoint")),
    Case("D-04: damage", is_damaged, everywhere("CRC"), exact=True),
    Case(
        "U-18: message format v1 beside a broker",
        nothing,
        {"live": "v0 or v1"},
        partition=holds_old_messages,
        exact=True,
    ),
    Case(
        "C-67: offsets that no index holds",
        nothing,
        {"live": "has to be split first", "on-start": "has to be split first"},
        partition=overflowed,
        exact=True,
        now_ms=OVERFLOW_NOW,
    ),
    Case(
        "U-35: a batch that is too large",
        nothing,
        everywhere("cleanerd.max.unpacked.bytes"),
        partition=holds_a_bomb,
        settings=(POLICY, f"cleanerd.max.unpacked.bytes={MIB}"),
        exact=True,
    ),
    Case(
        "U-16: no room",
        nothing,
        everywhere("not enough free space"),
        settings=(POLICY, f"cleanerd.disk.reserve={2**62}"),
        unseen=True,
    ),
    Case("U-33: a file where ours go", has_no_directory_of_ours, everywhere(".kstage"), unseen=True),
    Case("S-23: another cleanerd", is_claimed, everywhere("another cleanerd works on this partition"), unseen=True),
    Case("S-14: a process has it open", is_open_elsewhere, {"offline": "open for writing"}, unseen=True),
)
EXPECTED: Final = {"offline": "cleaned", "on-start": "staged", "live": "cleaned"}


@contextlib.contextmanager
def scene(root: Path, case: Case, mode: Mode) -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        path = make_log_dir(root / "logs", {"orders-0": case.partition()}, clean_shutdown=mode == "offline")
        agent = None
        if mode != "offline":
            stack.enter_context(held(path))
        if mode == "live":
            agent = stack.enter_context(FakeAgent(path, path / ".cleanerd-agent.sock"))
        found = Scene(root, path, mode, agent, stack)
        case.prepare(found)
        yield found


@dataclass
class Said:
    """What one verb said of the partition: whether it is (or would be) cleaned, else why not."""

    goes: bool
    why: str = field(default="")


def of_plan(shell: Shell, path: Path, *options: str) -> Said:
    answer = shell("plan", path, *options)
    if not answer.out:
        return Said(goes=False, why=answer.err)
    (row,) = answer.json["partitions"]
    return Said(row["action"] == "clean", row["reason"])


def of_explain(shell: Shell, path: Path, *options: str) -> Said:
    answer = shell("explain", "orders-0", path, *options)
    if answer.code:
        return Said(goes=False, why=answer.err)
    return Said(answer.json["cleaned_now"], answer.json["reason"])


def of_verb(shell: Shell, mode: Mode, path: Path, *options: str) -> Said:
    verb = {"offline": ("clean", "--yes"), "on-start": ("stage",), "live": ("clean", "--live", "--yes")}[mode]
    answer = shell(*verb, path, *options)
    if not answer.out:
        return Said(goes=False, why=answer.err)
    (row,) = answer.json["partitions"]
    return Said(row["outcome"] == EXPECTED[mode], row["reason"])


def of_daemon(root: Path, path: Path, settings: list[str]) -> Said:
    """What a look finds; the second one when S-03 asks for two."""
    told = load_settings([], [f"cleanerd.state.dir={root / 'state'}", *settings], {})
    context = LookContext(told, [path], StateStore(root / "state"), now_ms=lambda: NOW)
    looker = LogDirLooker(path)
    found = [look for _ in range(3) for look in looker.look(context).looks]
    looker.release()
    if not found:
        return Said(goes=False, why="no compacted partition")
    look = found[-1]
    if isinstance(look, FailedLook):
        return Said(goes=False, why=look.reason)
    assert isinstance(look, PartitionLook)
    return Said(look.eligible, look.reason)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_plan_promises_nothing_that_is_refused(
    root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch, case: Case, mode: Mode
) -> None:
    """By the same words in plan, explain and the verb that cleans in this mode; the daemon's look agrees."""
    monkeypatch.setattr(Shell, "common", ["--set", f"cleanerd.state.dir={root / 'state'}"])
    settings = ["cleanerd.disk.reserve=0", *(each.format(root=root) for each in case.settings)]
    common = ["--json", "--quiet", "--now-ms", str(case.now_ms), *(x for s in settings for x in ("--set", s))]
    chosen = [*common, "--partition", "orders-0", *case.options]
    words = case.refused.get(mode)
    with scene(root, case, mode) as found:
        planned = of_plan(shell, found.path, *chosen)
        exactly = of_plan(shell, found.path, "--exact", *chosen)
        explained = of_explain(shell, found.path, *common)
        looked = of_daemon(root, found.path, settings)
        done = of_verb(shell, mode, found.path, *chosen)
    assert done.goes == (words is None), done
    assert exactly.goes == done.goes, exactly
    told = [done, exactly]
    if not case.exact:
        assert planned.goes == explained.goes == done.goes, (planned, explained)
        told += [planned, explained]
        if not case.unseen:
            assert looked.goes == done.goes, looked
    if words is not None:
        assert [said for said in told if words not in said.why] == []
