"""Repeated ``cleanerd clean --live`` in this process that records every requested swap."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleanerd.broker.agent_jar import jar_path
from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.cli.clean import clean_dir_live
from cleanerd.cli.each_dir import CleaningRequest
from cleanerd.cli.output import Output
from cleanerd.config.load import load_settings
from cleanerd.errors import AgentRefusalError
from cleanerd.resolution.selection import PartitionSelection
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.swapping_broker import SWAP_SOURCES, SwappingBroker, SwapSources
from tests.support.log_dirs import batches_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.broker.agent_facts import SwapDone
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.format.names import TopicPartition
    from cleanerd_lab.demo.broker import Broker


@dataclass(frozen=True, slots=True)
class Swap:
    """One group that the agent swapped."""

    partition: str
    base: int
    sources: int
    records_before: int
    records_after: int
    held_us: int

    @property
    def is_merge(self) -> bool:
        """Whether it merged several segments into one."""
        return self.sources > 1


@dataclass
class Rounds:
    """Cleans the log directories of ``broker`` repeatedly."""

    broker: Broker
    state_dir: Path
    assignments: tuple[str, ...] = ()
    swaps: list[Swap] = field(default_factory=list)
    results: list[CleaningResult] = field(default_factory=list)
    before_swap: Callable[[dict[str, Any]], None] = lambda _request: None
    refused: list[str] = field(default_factory=list)
    kept: Path | None = None
    sources: SwapSources = SWAP_SOURCES
    connect: Callable[[Path], SwappingBroker] | None = None

    @property
    def dropping(self) -> list[Swap]:
        """The swaps that removed records. The others set a marker's delete horizon (C-48), or merged segments."""
        return [swap for swap in self.swaps if swap.records_after < swap.records_before]

    @property
    def refused_for_good(self) -> list[str]:
        """The agent's refusal codes except ``busy``, after which cleanerd retries.

        In each of its passes the broker's cleaner holds every compacted log for a moment, to find segments past
        retention (``LogCleanerManager.deletableLogs``). A swap may meet it at any time.
        """
        return [code for code in self.refused if code != "busy"]

    def note_swaps(self) -> None:
        """From now on, record requests in ``swaps`` and the agent's codes in ``refused``, and call ``before_swap``."""
        rounds = self

        class Noting(SwappingBroker):
            def __init__(self, socket: Path) -> None:
                super().__init__(socket, sources=rounds.sources)

            def swap(self, request: dict[str, Any], staged_bytes: int) -> SwapDone:
                rounds.before_swap(request)
                (group,) = request["groups"]
                directory = Path(request["dir"])
                sources = [directory / f"{source['base']:020d}.log" for source in group["sources"]]
                before = sum(map(count, sources))
                after = count(directory / ".kstage" / request["plan"] / group["files"]["log"])
                try:
                    done = super().swap(request, staged_bytes)
                except AgentRefusalError as refusal:
                    rounds.refused.append(refusal.code)
                    raise
                rounds.swaps.append(
                    Swap(directory.name, group["base"], len(sources), before, after, max(done.held_us, default=0))
                )
                return done

        self.connect = Noting

    def clean(self, *names: TopicPartition, **options: Any) -> list[CleaningResult]:
        """Clean all directories, or some partitions, once."""
        settings = load_settings(
            [],
            [
                f"cleanerd.state.dir={self.state_dir}",
                "cleanerd.disk.reserve=0",
                f"cleanerd.broker.properties={self.broker.properties_file}",
                *self.assignments,
            ],
        )
        wished = CleaningOptions(now_ms=time.time_ns() // 1_000_000, force=True, **options)
        output = Output(as_json=True, quiet=True)
        store = StateStore(settings.daemon.cleanerd_state_dir)
        wanted = PartitionSelection(tuple(map(str, names)), frozenset(names), frozenset(names))
        request = CleaningRequest(output, settings, self.broker.log_dirs, wanted, wished, store, self.kept)
        results, failures = request.each(partial(clean_dir_live, connect=self.connect))
        assert failures == [], list(map(str, failures))
        self.results += results
        return results


def count(path: Path) -> int:
    """Number of records in a segment, control records included; 0 if the file is deleted."""
    if not path.exists():
        return 0
    return sum(len(batch.records) for batch in batches_of(path.read_bytes()))


def with_agent(*options: str) -> tuple[str, ...]:
    """The JVM argument that loads the agent at the broker's start."""
    return (f"-javaagent:{jar_path()}" + (f"={','.join(options)}" if options else ""),)
