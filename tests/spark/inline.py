"""Jobs without Spark, with everything that Spark's scheduler may do to a task.

Every function is called twice and only one of the two results is used, as with retries, speculation and lost executors.
Rows arrive in any order and are then sorted as requested. Functions and tasks go through a pickle.
"""

from __future__ import annotations

import pickle
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cleanerd.spark.rows import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cleanerd.spark.jobs import Stage


@dataclass
class InlineJobs:
    """``attempts``: how often each task runs; the result of any one attempt is used."""

    seed: int = 0
    cores: int = 2
    attempts: int = 2
    names: list[str] = field(default_factory=list)
    largest_row_bytes: int = 0
    shuffled_bytes: int = 0
    results: list[Row] = field(default_factory=list)

    def __call__(self, _plan: object, _progress: object) -> InlineJobs:
        """Make ``jobs_of`` of itself."""
        return self

    def run(
        self,
        name: str,
        tasks: Sequence[Any],
        function: Callable[[Any], Iterator[Row]],
        *stages: Stage,
        work_bytes: int,  # noqa: ARG002
    ) -> list[Row]:
        """As :meth:`Jobs.run`."""
        pick = random.Random(self.seed)
        self.names.append(name)
        rows = [row for task in tasks for row in self._attempts(pick, function, task)]
        for stage in stages:
            self.shuffled_bytes += sum(len(row.payload) for row in rows)
            self.largest_row_bytes = max(self.largest_row_bytes, *(len(row.payload) for row in rows), 0)
            arrived = defaultdict(list)
            pick.shuffle(rows)
            for row in rows:
                arrived[row.target % stage.partitions].append(row)
            rows = []
            for place in range(stage.partitions):
                there = sorted(arrived[place], key=lambda row: tuple(getattr(row, name) for name in stage.order))
                rows += self._attempts(pick, stage.function, there)
        self.results += rows
        return rows

    def _attempts(self, pick: random.Random, function: Callable[[Any], Iterator[Row]], argument: Any) -> list[Row]:
        outcomes = []
        for _ in range(self.attempts):
            again, given = pickle.loads(pickle.dumps((function, argument)))  # noqa: S301 - our own
            outcomes.append(list(again(iter(given) if isinstance(argument, list) and _of_rows(argument) else given)))
        return pick.choice(outcomes)


def _of_rows(argument: list[Any]) -> bool:
    return not argument or isinstance(argument[0], Row)
