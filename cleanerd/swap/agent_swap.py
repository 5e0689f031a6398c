"""The swaps of one plan, requested from the agent group by group: witnesses, repeats, lost answers (A-14, A-25, U-3).

After a missing answer the same request is sent again, because the agent remembers its swaps. If the broker restarted
and the agent forgot them, the log shows the swap: the output has the inode of the staged file.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cleanerd.broker.agent_client import AgentLostError
from cleanerd.broker.agent_facts import BrokerSegment, LogFacts, SwapDone
from cleanerd.broker.live_broker import UNCERTAIN, is_offline_log_dir
from cleanerd.broker.live_log import RESTART
from cleanerd.cleaner.manifest import Manifest, StagedGroup, staged_name, write_manifest
from cleanerd.cleaner.refusals import refuse_deletions
from cleanerd.errors import (
    LATER,
    LOG_DIR_FAILED,
    NO_EVIDENCE,
    NO_LOG,
    AgentRefusalError,
    AgentUnavailableError,
    MachineError,
    RefusedError,
    StalePlanError,
)
from cleanerd.format.index import TXN_ENTRY
from cleanerd.format.names import MAX_OFFSET, file_name
from cleanerd.policy.transaction import AbortedTransactions
from cleanerd.swap.signals import signals_wait
from cleanerd.swap.swapping_broker import SWAP_SOURCES, SwappingBroker, SwapSources
from cleanerd.swap.unfinished import refuse_unfinished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cleanerd.cleaner.cleaner import Cleaning
    from cleanerd.cleaner.decide import SegmentDecision
    from cleanerd.cleaner.resources import Resources
    from cleanerd.cleaner.stage import Staging
    from cleanerd.errors import CleanerdError
    from cleanerd.swap.files import PartitionFiles

_PAUSE_FACTOR: Final = 10
"""R-9: after a swap that delayed appends, the next one begins after this many times the delay."""
_MAX_PAUSE_SECONDS: Final = 1.0
_COMFORTABLE_SECONDS: Final = 0.002
"""How long a swap may hold the partition's lock by design; a busy disk can double it."""


class Swapper:
    """Requests the swaps of one plan's groups, in order.

    ``held_seconds``: the longest time that appends to the partition waited for a swap. ``in_doubt``: it is unknown
    whether the last requested swap was made.
    """

    def __init__(
        self, broker: SwappingBroker, files: PartitionFiles, facts: LogFacts, cleaning: Cleaning, resources: Resources
    ) -> None:
        self._broker = broker
        self._files = files
        self._facts = facts
        self._cleaning = cleaning
        self._plan = cleaning.plan
        self._resources = resources
        # U-3: every segment that the decision depends on, as it must be at the next swap.
        self._evidence = {
            witness.base: BrokerSegment(witness.base, witness.size, witness.mtime_ns // 1_000_000, witness.inode)
            for witness in (segment.witness for segment in cleaning.decision.segments)
        }
        # The part that was clean before, above the end of this cleaning (--cleanable-to), as it was then.
        end = max(self._evidence, default=-1)
        self._above = {each.base: each for each in facts.segments[:-1] if each.base > end}
        self._agent_has_evidence = False
        self._paused_until = 0.0
        cleaning.most_sources = broker.sources.first
        # U-32: the same for the entries of all transaction indexes that the decision depends on.
        self._aborted = cleaning.plan.aborted.entries
        self.held_seconds = 0.0
        self.in_doubt = False
        self._is_whole = True
        self.notes: tuple[str, ...] = ()

    def wait_for_deletions(self, file_delete_delay_ms: int) -> None:
        """D-04: wait before replacing a segment while the files of its last replacement are being deleted.

        Raises:
            LaterError: that takes longer than a cleaning can wait.
        """
        deadline = time.monotonic() + self._broker.patience.deletion_seconds
        while refuse_deletions(self._cleaning, self._files.stat, file_delete_delay_ms, deadline - time.monotonic()):
            time.sleep(0.1)

    def swap(self, staging: Staging, staged: StagedGroup, members: Sequence[SegmentDecision]) -> None:
        """Swap one group; it is in the log when this returns.

        Raises:
            AgentRefusalError, StalePlanError, AgentUnavailableError, MachineError: it was not swapped, or that is
                unknown; earlier groups stay swapped in.
        """
        witnesses = tuple(member.witness for member in members)
        manifest = Manifest.of(self._plan, (staged,), witnesses, self._resources.plan_max_age_ms)
        # The recovery of an interrupted swap reads it before the broker starts; the broker does not read it.
        write_manifest(staging.directory, manifest, where=staging.path, lasting=False)
        output = self._staged_as(staging, staged)
        _wait(self._paused_until - time.monotonic())
        with signals_wait():
            done = self._request_swap(self._request(staged), staged, output)
        self.in_doubt = False
        for base in staged.sources:
            del self._evidence[base]
        self._evidence[staged.base] = output
        self._aborted = _with_output(self._aborted, staged, members)
        self._agent_has_evidence = done is not None and done.witnesses_kept
        if done is not None:
            held_seconds = max((us / 1_000_000 for us in done.held_us), default=0.0)
            self._paused_until = time.monotonic() + min(held_seconds * _PAUSE_FACTOR, _MAX_PAUSE_SECONDS)
            before, limits = self._cleaning.most_sources, self._broker.sources
            self._cleaning.most_sources = sources_for(held_seconds, len(staged.sources), before, limits)
            self.held_seconds = max(self.held_seconds, held_seconds)
            self.notes += tuple(f"the broker's agent: {warning[:600]}" for warning in done.warnings[:5])
            self._is_whole = not done.warnings

    def require_no_half_swap(self, staged: StagedGroup) -> None:
        """U-34: refuse if a swap stopped halfway with the group in it: only the broker's next start completes it.

        Raises:
            RefusedError: the last request was such a swap; no other one may begin.
        """
        if self._is_whole:
            return
        try:
            refuse_unfinished(self._files, self._files.names())
        except RefusedError as error:
            raise RefusedError(
                f"group {staged.base} was swapped, but not all of its files have their names: {'; '.join(self.notes)}",
                where=error.where,
                hint=RESTART,
            ) from error

    def segment_below(self, offset: int) -> BrokerSegment | None:
        """The last segment that begins below ``offset``, as it must be now."""
        known = {**self._evidence, **self._above}
        bases = [base for base in known if base < offset]
        return known[max(bases)] if bases else None

    def _staged_as(self, staging: Staging, staged: StagedGroup) -> BrokerSegment:
        """The output as the broker will report it: renames keep inode and modification time."""
        try:
            status = staging.stat(staged.base)
        except FileNotFoundError as error:
            where = self._files.where(staged_name(self._plan.plan_id, staged.base, "log"))
            raise StalePlanError("the staged log vanished", where=where) from error
        return BrokerSegment(staged.base, status.st_size, status.st_mtime_ns // 1_000_000, status.st_ino)

    def _request(self, staged: StagedGroup) -> dict[str, Any]:
        plan, facts = self._plan, self._facts
        group = {
            "base": staged.base,
            "end": staged.end,
            "sources": [self._evidence[base].to_json() for base in staged.sources],
            "files": {kind: file_name(staged.base, f".{kind}") for kind in staged.kinds()},
            "sizes": {kind: staged.files[kind].bytes for kind in staged.kinds()},
            "crc32c": {kind: staged.files[kind].crc32c for kind in staged.kinds()},
        }
        request = {
            "plan": plan.plan_id,
            "topic": plan.name.topic,
            "partition": plan.name.partition,
            "topic_id": facts.topic_id,
            "dir": facts.dir,
            "log_start": plan.log_start_offset if plan.rules.versioned else None,
            "groups": [group],
            "checkpoint": None,
            "recovery_point": False,
        }
        return request if self._agent_has_evidence else self._with_witnesses(request)

    def _with_witnesses(self, request: dict[str, Any]) -> dict[str, Any]:
        """U-3: add the witnesses, once per connection; the agent stores them, and updates them with each swap."""
        evidence: dict[str, Any] = {"witnesses": [self._evidence[base].to_json() for base in sorted(self._evidence)]}
        # The agent's digest is that of sorted indexes; for others, the markers prove the entries (U-44).
        if self._facts.compares_aborted and not self._plan.aborted.disordered:
            aborted = AbortedTransactions(self._aborted)
            evidence["aborted"] = {
                "below": self._plan.first_uncleanable_offset,
                "sha256": aborted.digest(0, MAX_OFFSET),
            }
        return {**request, **evidence}

    def _request_swap(self, request: dict[str, Any], staged: StagedGroup, output: BrokerSegment) -> SwapDone | None:
        """Send the request until an answer decides; None if the log had to show the result."""
        doubtful = over = False
        self.in_doubt = True
        problem: CleanerdError | None = None
        failure: CleanerdError | None = None
        for wait in (0.0, *self._broker.patience.waits()):
            _wait(wait)
            try:
                if isinstance(problem, AgentUnavailableError):
                    self._broker.reconnect()
                if doubtful and self._is_swapped(staged, output):
                    return None
                if over:
                    break
                return self._checked(self._sent(request, staged.files["log"].bytes), staged, output)
            except AgentUnavailableError as error:
                doubtful = doubtful or isinstance(error, AgentLostError)
                problem = error
            except AgentRefusalError as error:
                if error.code == LOG_DIR_FAILED:
                    # Half swapped: only a start of the broker completes it, and a later undo needs the old segments.
                    self.in_doubt = doubtful or staged.base in error.done
                    raise self._gave_up_error(error) from error
                if staged.base in error.done:
                    return None
                # An earlier try may have used the staged files.
                lost = problem is not None and error.code == "no_staged_file"
                doubtful = doubtful or lost or error.code in UNCERTAIN
                problem = error
                if error.code in UNCERTAIN:
                    failure = error
                if error.code not in LATER | UNCERTAIN:
                    if not doubtful:
                        self.in_doubt = False
                        raise
                    # Whatever the first request did, its staged files may be deleted or swapped in.
                    problem = failure or StalePlanError(f"the swap was not made: {error}", where=self._plan.path)
                    problem.plan_again = over = True
        self.in_doubt = doubtful
        self._require_log_dir(problem)
        raise problem or StalePlanError("no swap was requested: no attempt was left", where=self._plan.path)

    def _require_log_dir(self, problem: CleanerdError | None) -> None:
        """Check whether the broker has taken the missing partition's log directory offline.

        Raises:
            MachineError: it has; waiting does not help.
        """
        if not isinstance(problem, AgentRefusalError) or problem.code != NO_LOG:
            return
        with suppress(AgentUnavailableError):
            if is_offline_log_dir(self._broker.info(), self._facts):
                raise self._gave_up_error(problem) from problem

    def _gave_up_error(self, problem: AgentRefusalError) -> MachineError:
        return MachineError(
            f"the broker has given up the log directory of {self._plan.name}: {problem}",
            where=self._plan.path,
            hint="its log has the error; the broker uses the directory again after a restart",
        )

    def _sent(self, request: dict[str, Any], staged_bytes: int) -> SwapDone:
        """As ``SwappingBroker.swap``; adds the witnesses if the agent does not have them."""
        try:
            return self._broker.swap(request, staged_bytes)
        except AgentRefusalError as error:
            if error.code != NO_EVIDENCE:
                raise
        request.update(self._with_witnesses(request))
        return self._broker.swap(request, staged_bytes)

    def _checked(self, done: SwapDone, staged: StagedGroup, output: BrokerSegment) -> SwapDone:
        """Raises StalePlanError if the log has another segment now."""
        outputs = [each for each in done.outputs if each.get("base") == staged.base]
        doubtful = staged.base not in done.done or (outputs and outputs[0] != output.to_json())
        if doubtful and not self._is_swapped(staged, output):
            raise StalePlanError(
                f"the broker reports that group {staged.base} was swapped, but has another segment",
                where=self._plan.path,
            )
        return done

    def _is_swapped(self, staged: StagedGroup, output: BrokerSegment) -> bool:
        """A-25: the output is in the log, and the other sources are not."""
        segments = {segment.base: segment for segment in self._broker.log(self._plan.name).segments}
        return segments.get(staged.base) == output and not set(staged.sources[1:]) & segments.keys()


def _wait(seconds: float) -> None:
    """Not at all if there is nothing to wait for: a sleep of 0 seconds gives the processor away."""
    if seconds > 0:
        time.sleep(seconds)


def sources_for(held_seconds: float, sources: int, before: int, limits: SwapSources = SWAP_SOURCES) -> int:
    """How many sources the next swap may have, after one of ``sources`` held the lock for ``held_seconds``.

    At most the 200 of a group (U-36). The number moves halfway to the comfortable size, so that a single slow fsync
    does not limit it for long.
    """
    wanted = sources * _COMFORTABLE_SECONDS / max(held_seconds, 1e-6)
    if wanted > before and sources < before:  # a small group does not predict large ones
        return before
    return round(min(max((before + wanted) / 2, limits.fewest), limits.most))


def _with_output(
    aborted: NDArray[np.void], staged: StagedGroup, members: Sequence[SegmentDecision]
) -> NDArray[np.void]:
    """The entries of all transaction indexes, after the output has replaced its sources."""
    markers = aborted["last_offset"]
    others = aborted[(markers < staged.base) | (markers >= staged.end)]
    return np.concatenate([others, *(member.txn_entries for member in members)], dtype=TXN_ENTRY)
