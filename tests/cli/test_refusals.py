"""Every refusal in every mode: ``plan`` and ``explain`` promise nothing that a cleaning refuses.

And the other way round: every cleaned partition was promised. The daemon agrees.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest

from cleanerd.config.load import load_settings
from cleanerd.daemon.discovery.log_dir_scan import ScanContext
from cleanerd.daemon.discovery.log_dir_scanner import LogDirScanner
from cleanerd.daemon.limits import DaemonLimits
from cleanerd.daemon.partition_scan import FailedScan, PartitionScan
from cleanerd.state.cleaner_checkpoint import StateStore
from tests.cli.clean_log_dirs import NOW, Answer, Shell, dirty
from tests.cli.refused_states import (
    MIB,
    MODES,
    POLICY,
    Mode,
    Scene,
    belongs_to_zookeeper,
    had_its_delegation_set_aside,
    has_a_bad_setting,
    has_a_file_named_like_the_staging_directory,
    has_a_swap_file,
    has_a_tier_file,
    has_an_open_transaction,
    has_damaged_kafka_state,
    has_damaged_metadata,
    has_damaged_state,
    has_garbage,
    has_no_high_watermarks,
    has_no_memory_for_its_batches,
    has_properties_of_another_node,
    has_remote_segments,
    has_unlistable_state,
    holds_a_bomb,
    holds_old_messages,
    is_claimed,
    is_clean,
    is_clean_enough,
    is_damaged,
    is_deleted,
    is_in_use,
    is_moved,
    is_not_compacted,
    is_open_in_another_process,
    is_tiered,
    lost_delegations_of_others,
    lost_its_delegation,
    the_broker_reports_the_open_transaction,
    unchanged,
    unknown_rules,
    was_cleaned_by_a_newer_release,
    was_cleaned_by_version,
    was_created_again,
    was_killed,
    was_replaced_a_moment_ago,
)
from tests.support.fake_agent import FakeAgent
from tests.support.log_dirs import (
    Partition,
    make_log_dir,
)
from tests.support.overflow import NOW_MS as OVERFLOW_NOW
from tests.support.overflow import overflowed
from tests.swap.live_round import held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Case:
    """A state of the partition, and the refusal by mode; in all other modes it is cleaned.

    ``exact``: only commands that read every record find it. ``unseen``: the daemon only finds it when it starts the
    cleaning. ``options``: of plan and of the cleaning command; explain and the daemon have none.
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


CASES: Final = (
    Case("U-29: no refusal", unchanged, {}),
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
    Case("S-49: tiered by a vendor", has_a_tier_file, everywhere(".tierstate is a file of tiered storage")),
    Case("A-13: segments elsewhere", has_remote_segments, {"live": "remote storage"}),
    Case("A-13: being deleted", is_deleted, {"live": "being deleted"}),
    Case("not compacted", is_not_compacted, everywhere("cleanup.policy is"), settings=()),
    Case(
        "U-24: no setting says that it is compacted",
        unchanged,
        {"offline": "unknown", "on-start": "unknown"},
        settings=(),
    ),
    Case("U-24: a setting that Kafka rejects", has_a_bad_setting, everywhere("min.cleanable.dirty.ratio")),
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
        "C-05: too recent",
        unchanged,
        everywhere("min.compaction.lag.ms"),
        settings=(POLICY, f"topics.orders.min.compaction.lag.ms={2**62}"),
    ),
    Case(
        "S-04: an open transaction",
        the_broker_reports_the_open_transaction,
        everywhere("an open transaction"),
        partition=has_an_open_transaction,
    ),
    Case(
        "U-8: not delegated",
        unchanged,
        everywhere("cleanerd delegate"),
        settings=(POLICY, "topics.orders.compaction.strategy=timestamp"),
    ),
    Case("U-6: a strategy that was forgotten", was_cleaned_by_version, everywhere("was last cleaned by header:v")),
    Case("U-6: its state file cannot be read", unknown_rules, everywhere(".json cannot be read (")),
    Case("U-6: the state directory cannot be read", has_unlistable_state, everywhere("cannot be read (")),
    Case("U-6: its state file is damaged", has_damaged_state, everywhere("is damaged (")),
    Case("U-6, U-8: damaged and not delegated", has_damaged_kafka_state, {}, settings=()),
    Case("U-6: delegations are lost", lost_its_delegation, everywhere("whether orders is delegated is unknown")),
    Case("U-6: delegations set aside", had_its_delegation_set_aside, everywhere("delegations.damaged is damaged")),
    Case("U-6, U-8: lost and not delegated", lost_delegations_of_others, {}, settings=()),
    Case(
        "U-6: rules that this release does not know",
        was_cleaned_by_a_newer_release,
        everywhere("was last cleaned by newest;"),
    ),
    Case(
        "U-6: the same, and the change is confirmed",
        was_cleaned_by_a_newer_release,
        {},
        options=("--change-strategy", "--force"),
    ),
    Case(
        "U-40: a broker in ZooKeeper mode, and an invalid login",
        belongs_to_zookeeper,
        {"offline": "unknown", "on-start": "unknown"},
        settings=("bootstrap.servers=127.0.0.1:9", "cleanerd.command.config={root}/client.properties"),
    ),
    Case(
        "U-40: the same, where the settings say that it is compacted",
        belongs_to_zookeeper,
        {},
        settings=(POLICY, "bootstrap.servers=127.0.0.1:9", "cleanerd.command.config={root}/client.properties"),
    ),
    Case("U-23: the metadata log is damaged", has_damaged_metadata, everywhere("CRC")),
    Case(
        "U-24: server.properties of another node",
        has_properties_of_another_node,
        everywhere("node.id is 2, but"),
        settings=(POLICY, "cleanerd.broker.properties={root}/server.properties"),
    ),
    Case(
        "more than the log has is asked for",
        unchanged,
        everywhere("--cleanable-to 99 is above"),
        options=("--cleanable-to", "99"),
    ),
    Case("a garbage file", has_garbage, everywhere("leader-epoch-checkpoint")),
    Case("D-04: damage", is_damaged, everywhere("CRC"), exact=True),
    Case(
        "U-18: message format v1 with a running broker",
        unchanged,
        {"live": "v0 or v1"},
        partition=holds_old_messages,
        exact=True,
    ),
    Case(
        "C-67: offsets that no index can hold",
        unchanged,
        {"live": "has to be split first", "on-start": "has to be split first"},
        partition=overflowed,
        exact=True,
        now_ms=OVERFLOW_NOW,
    ),
    Case(
        "U-35: a batch that is too large",
        unchanged,
        everywhere("cleanerd.max.unpacked.bytes"),
        partition=holds_a_bomb,
        settings=(POLICY, f"cleanerd.max.unpacked.bytes={MIB}"),
        exact=True,
    ),
    Case(
        "U-35: more batches and records than fit the memory",
        has_no_memory_for_its_batches,
        everywhere("bytes of memory, and cleanerd may use"),
        exact=True,
    ),
    Case(
        "D-04: replaced a moment ago",
        was_replaced_a_moment_ago,
        {"live": "was replaced less than file.delete.delay.ms=600000 ago"},
        exact=True,
    ),
    Case(
        "U-16: no space",
        unchanged,
        everywhere("not enough free space"),
        settings=(POLICY, f"cleanerd.disk.reserve={2**62}"),
        unseen=True,
    ),
    Case(
        "U-33: a file instead of the staging directory",
        has_a_file_named_like_the_staging_directory,
        everywhere(".kstage"),
        unseen=True,
    ),
    Case("S-23: another cleanerd", is_claimed, everywhere("another cleanerd works on this partition"), unseen=True),
    Case("U-39: another command of cleanerd", is_in_use, {"offline": "is held by cleanerd"}, unseen=True),
    Case("S-14: a process has it open", is_open_in_another_process, {"offline": "open for writing"}, unseen=True),
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
class Answered:
    """A command's answer about the partition: whether it is (or would be) cleaned, and otherwise why not."""

    is_cleaned: bool
    why: str = field(default="")


def of_plan(shell: Shell, path: Path, *options: str) -> Answered:
    answer = shell("plan", path, *options)
    row = the_row(answer)
    return failed(answer) if row is None else Answered(row["action"] == "clean", row["reason"])


def of_explain(shell: Shell, path: Path, *options: str) -> Answered:
    answer = shell("explain", "orders-0", path, *options)
    if answer.code:
        return failed(answer)
    return Answered(answer.json["cleaned_now"], answer.json["reason"])


def of_command(shell: Shell, mode: Mode, path: Path, *options: str) -> Answered:
    command = {"offline": ("clean", "--yes"), "on-start": ("stage",), "live": ("clean", "--live", "--yes")}[mode]
    answer = shell(*command, path, *options)
    row = the_row(answer)
    return failed(answer) if row is None else Answered(row["outcome"] == EXPECTED[mode], row["reason"])


def the_row(answer: Answer) -> Any:
    """The row of the one partition; None if there is none."""
    rows = answer.json.get("partitions", []) if answer.out else []
    assert len(rows) <= 1, rows
    return rows[0] if rows else None


def failed(answer: Answer) -> Answered:
    """Errors about the directory as a whole."""
    assert answer.code in {3, 4, 5}, answer
    return Answered(is_cleaned=False, why=answer.out + answer.err)


def of_daemon(root: Path, path: Path, settings: list[str]) -> Answered:
    """The result of a scan; of the second one when S-03 requires two."""
    reported = load_settings([], [f"cleanerd.state.dir={root / 'state'}", *settings], {})
    context = ScanContext(reported, [path], StateStore(root / "state"), now_ms=lambda: NOW)
    scanner = LogDirScanner(path, limits=DaemonLimits(settle_seconds=0.0))
    found = [scan for _ in range(3) for scan in scanner.scan(context).scans]
    scanner.release()
    if not found:
        return Answered(is_cleaned=False, why="no compacted partition")
    scan = found[-1]
    if isinstance(scan, FailedScan):
        return Answered(is_cleaned=False, why=scan.reason)
    assert isinstance(scan, PartitionScan)
    return Answered(scan.eligible, scan.reason)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_plan_promises_nothing_that_is_refused(root: Path, shell: Shell, case: Case, mode: Mode) -> None:
    """With the same words in plan, explain and the cleaning command of this mode; the daemon's scan agrees."""
    shell.disk_reserve = ""
    settings = ["cleanerd.disk.reserve=0", *(each.format(root=root) for each in case.settings)]
    common = ["--json", "--quiet", "--now-ms", str(case.now_ms), *(x for s in settings for x in ("--set", s))]
    chosen = [*common, "--partition", "orders-0", *case.options]
    words = case.refused.get(mode)
    with scene(root, case, mode) as found:
        planned = of_plan(shell, found.path, *chosen)
        exactly = of_plan(shell, found.path, "--exact", *chosen)
        explained = of_explain(shell, found.path, *common)
        scanned = of_daemon(root, found.path, settings)
        done = of_command(shell, mode, found.path, *chosen)
    assert done.is_cleaned == (words is None), done
    assert exactly.is_cleaned == done.is_cleaned, exactly
    reported = [done, exactly]
    if not case.exact:
        assert planned.is_cleaned == done.is_cleaned, planned
        reported += [planned]
        if not case.options:
            assert explained.is_cleaned == done.is_cleaned, explained
            reported += [explained]
        if not (case.unseen or case.options):
            assert scanned.is_cleaned == done.is_cleaned, scanned
    if words is not None:
        assert [message for message in reported if words not in message.why] == []
