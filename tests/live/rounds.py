"""Rounds of ``cleanerd clean --live`` in this process, with a note of every swap that was asked for."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cleanerd.apply.agent_jar import jar_path
from cleanerd.apply.live_broker import LiveBroker
from cleanerd.cleaner.survey import Wishes
from cleanerd.cli import clean_live
from cleanerd.cli.output import Output
from cleanerd.settings import load_settings

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from cleanerd.apply.agent_facts import SwapDone
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.demo.broker import Broker
    from cleanerd.format.names import TopicPartition


@dataclass(frozen=True, slots=True)
class Swap:
    """One group that the agent swapped."""

    partition: str
    base: int
    sources: int
    bytes_before: int
    bytes_after: int
    held_us: int

    @property
    def is_merge(self) -> bool:
        """Several segments became one."""
        return self.sources > 1


@dataclass
class Rounds:
    """Cleans the log directories of ``broker`` again and again."""

    broker: Broker
    state_dir: Path
    assignments: tuple[str, ...] = ()
    swaps: list[Swap] = field(default_factory=list)
    results: list[CleaningResult] = field(default_factory=list)

    def note_swaps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on ``swaps`` fills up."""
        swaps = self.swaps

        class Noting(LiveBroker):
            def swap(self, request: dict[str, Any], staged_bytes: int) -> SwapDone:
                done = super().swap(request, staged_bytes)
                (group,) = request["groups"]
                before = sum(source["size"] for source in group["sources"])
                name = f"{request['topic']}-{request['partition']}"
                held_us = max(done.held_us, default=0)
                swaps.append(Swap(name, group["base"], len(group["sources"]), before, group["sizes"]["log"], held_us))
                return done

        monkeypatch.setattr(clean_live, "LiveBroker", Noting)

    def clean(self, *names: TopicPartition, **wishes: Any) -> list[CleaningResult]:
        """One round over all directories, or over some partitions."""
        settings = load_settings(
            [],
            [
                f"cleanerd.state.dir={self.state_dir}",
                "cleanerd.disk.reserve=0",
                f"cleanerd.broker.properties={self.broker.properties_file}",
                *self.assignments,
            ],
        )
        wished = Wishes(now_ms=time.time_ns() // 1_000_000, force=True, **wishes)
        output = Output(as_json=True, quiet=True)
        results, failures = clean_live.clean_all_live(output, settings, self.broker.log_dirs, names, wished)
        assert failures == []
        self.results += results
        return results


def with_agent(*options: str) -> tuple[str, ...]:
    """The JVM argument that loads the agent at the broker's start."""
    return (f"-javaagent:{jar_path()}" + (f"={','.join(options)}" if options else ""),)
