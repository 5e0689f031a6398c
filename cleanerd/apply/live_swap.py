"""The swaps of one plan, asked of the agent group by group: witnesses, repeats, lost answers (A-14, A-25, U-3).

An answer that does not come says nothing. The same request is then sent again - the agent remembers what it did - and
when it does not remember, because the broker was started anew, the log itself tells: the output has the inode of the
file that was staged, whatever names it went through.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from cleanerd.apply.agent_client import AgentLostError
from cleanerd.apply.agent_facts import BrokerSegment
from cleanerd.apply.live_broker import LATER, UNCERTAIN
from cleanerd.apply.offline import manifest_of
from cleanerd.apply.signals import signals_wait
from cleanerd.cleaner.manifest import staged_name, write_manifest
from cleanerd.errors import AgentRefusalError, AgentUnavailableError, RefusedError, StalePlanError
from cleanerd.format.names import DELETED_SUFFIX, SEGMENT_SUFFIX, file_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.apply.agent_facts import LogFacts, SwapDone
    from cleanerd.apply.files import PartitionFiles
    from cleanerd.apply.live_broker import LiveBroker
    from cleanerd.apply.session import Means
    from cleanerd.cleaner.cleaner import Cleaning
    from cleanerd.cleaner.decide import SegmentDecision
    from cleanerd.cleaner.manifest import StagedGroup
    from cleanerd.cleaner.stage import Staging
    from cleanerd.errors import CleanerdError


class Swapper:
    """Has the groups of one plan swapped, in the order in which they come.

    ``held_seconds`` is the longest time that appends to the partition had to wait for a swap.
    """

    def __init__(
        self, broker: LiveBroker, files: PartitionFiles, facts: LogFacts, cleaning: Cleaning, means: Means
    ) -> None:
        self._broker = broker
        self._files = files
        self._facts = facts
        self._cleaning = cleaning
        self._plan = cleaning.plan
        self._means = means
        # U-3: every segment that the decision rests on, as it must be at the next swap.
        self._evidence = {
            witness.base: BrokerSegment(witness.base, witness.size, witness.mtime_ns // 1_000_000, witness.inode)
            for witness in (segment.witness for segment in cleaning.decision.segments)
        }
        self.held_seconds = 0.0
        self.notes: tuple[str, ...] = ()

    def wait_for_deletions(self, file_delete_delay_ms: int) -> None:
        """D-04: a segment that was replaced a moment ago is not replaced again while its old files still go.

        Raises:
            RefusedError: that takes longer than a round can wait.
        """
        segments = self._cleaning.decision.segments
        bases = [segments[row].source.base for rows in self._cleaning.groups() for row in rows]
        deadline = time.monotonic() + self._broker.patience.deletion_seconds
        while waiting := [(left, base) for base in bases if (left := self._going_for(base, file_delete_delay_ms)) > 0]:
            seconds, base = max(waiting)
            if time.monotonic() + seconds > deadline:
                raise RefusedError(
                    f"segment {base} was replaced less than file.delete.delay.ms={file_delete_delay_ms} ago (D-04)",
                    where=self._plan.path,
                    hint=f"try again in {seconds:.0f} s",
                )
            time.sleep(0.1)

    def _going_for(self, base: int, file_delete_delay_ms: int) -> float:
        """Seconds until the broker removes the old files of ``base``; 0 when there are none."""
        status = self._files.stat(file_name(base, SEGMENT_SUFFIX + DELETED_SUFFIX))
        if status is None:
            return 0.0
        return max(file_delete_delay_ms / 1000 - (time.time() - status.st_ctime), 0.1)

    def swap(self, staging: Staging, staged: StagedGroup, members: Sequence[SegmentDecision]) -> None:
        """One group; it is in the log when this returns.

        Raises:
            AgentRefusalError, StalePlanError, AgentUnavailableError: it is not, or nobody knows; groups before it are.
        """
        witnesses = tuple(member.witness for member in members)
        write_manifest(
            staging.directory, manifest_of(self._plan, (staged,), witnesses, self._means), where=staging.path
        )
        output = self._staged_as(staged)
        with signals_wait():
            done = self._ask(self._request(staged), staged, output)
        for base in staged.sources:
            del self._evidence[base]
        self._evidence[staged.base] = output
        if done is not None:
            self.held_seconds = max(self.held_seconds, *(us / 1_000_000 for us in done.held_us), 0.0)
            self.notes += tuple(f"the broker's agent: {warning[:300]}" for warning in done.warnings[:5])

    def segment_below(self, offset: int) -> BrokerSegment | None:
        """The last segment that begins below ``offset``, as it must be now."""
        bases = [base for base in self._evidence if base < offset]
        return self._evidence[max(bases)] if bases else None

    def _staged_as(self, staged: StagedGroup) -> BrokerSegment:
        """The output as the broker will hold it: renames keep inode and modification time."""
        name = staged_name(self._plan.plan_id, staged.base, "log")
        status = self._files.stat(name)
        if status is None:
            raise StalePlanError("the staged log vanished", where=self._files.where(name))
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
        return {
            "plan": plan.plan_id,
            "topic": plan.name.topic,
            "partition": plan.name.partition,
            "topic_id": facts.topic_id,
            "dir": facts.dir,
            "log_start": plan.log_start_offset if plan.rules.versioned else None,
            "witnesses": [self._evidence[base].to_json() for base in sorted(self._evidence)],
            "groups": [group],
            "checkpoint": None,
        }

    def _ask(self, request: dict[str, Any], staged: StagedGroup, output: BrokerSegment) -> SwapDone | None:
        """Send it until there is an answer that counts; None when the log itself had to tell."""
        doubtful = False
        problem: CleanerdError | None = None
        for wait in (0.0, *self._broker.patience.waits()):
            time.sleep(wait)
            try:
                if isinstance(problem, AgentUnavailableError):
                    self._broker.find_again()
                if doubtful and self._is_swapped(staged, output):
                    return None
                if isinstance(problem, StalePlanError):
                    break
                return self._checked(self._broker.swap(request, staged.files["log"].bytes), staged, output)
            except AgentUnavailableError as error:
                doubtful = doubtful or isinstance(error, AgentLostError)
                problem = error
            except AgentRefusalError as error:
                if staged.base in error.done:
                    return None
                doubtful = doubtful or error.code in UNCERTAIN
                problem = error
                if error.code not in LATER | UNCERTAIN:
                    if not doubtful:
                        raise
                    # Whatever became of the first request, what was staged for it may be gone; or it is swapped.
                    problem = StalePlanError(f"the swap came to nothing: {error}", where=self._plan.path)
        raise problem or StalePlanError("no try was allowed", where=self._plan.path)

    def _checked(self, done: SwapDone, staged: StagedGroup, output: BrokerSegment) -> SwapDone:
        """Raises StalePlanError when something else is in the log now."""
        told = [each for each in done.outputs if each.get("base") == staged.base]
        doubtful = staged.base not in done.done or (told and told[0] != output.to_json())
        if doubtful and not self._is_swapped(staged, output):
            raise StalePlanError(
                f"the broker says that group {staged.base} is swapped, and holds another segment", where=self._plan.path
            )
        return done

    def _is_swapped(self, staged: StagedGroup, output: BrokerSegment) -> bool:
        """A-25: the output is in the log, and the other sources are not."""
        segments = {segment.base: segment for segment in self._broker.log(self._plan.name).segments}
        return segments.get(staged.base) == output and not set(staged.sources[1:]) & segments.keys()
