"""Runs ``cleanerd`` as an operator would: in its own process, with the demonstration's settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cleanerd.errors import CleanerdError
from cleanerd_lab.bench.process import Finished, run_cleanerd

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker

CONFIG_NAME = "cleanerd.toml"


class Command:
    """Runs commands against one broker and its log directory; settings and state are in ``work_dir``.

    ``config``: the text of ``cleanerd.toml``, written with the first command.
    """

    def __init__(self, broker: Broker, work_dir: Path, config: str) -> None:
        self.config_file = work_dir / CONFIG_NAME
        self._broker = broker
        self._config = config
        self._bytecode_dir = work_dir / "bytecode"
        self._settings = (
            f"cleanerd.state.dir={work_dir / 'state'}",
            f"cleanerd.broker.properties={broker.properties_file}",
            f"bootstrap.servers={broker.bootstrap}",
        )

    def run(self, command: str, *arguments: str) -> Finished:
        """Run one command with ``--json``, and wait for it.

        Raises:
            CleanerdError: its exit code is not 0.
        """
        self.config_file.write_text(self._config)
        settings = [part for setting in self._settings for part in ("--set", setting)]
        options = ["--quiet", "--json", "--config", str(self.config_file), *settings]
        done = run_cleanerd([command, *options, *arguments], bytecode_dir=self._bytecode_dir)
        if done.exit_code != 0:
            raise CleanerdError(
                f"cleanerd {command} ended with exit code {done.exit_code}:\n{done.stderr}{done.stdout!r}"
            )
        return done

    def plan(self, topics: Iterable[str]) -> Finished:
        """``cleanerd plan`` for the only partition of each topic."""
        return self.run("plan", *_partitions(topics), str(self._broker.log_dirs[0]))

    def clean(self, topics: Sequence[str], *options: str) -> tuple[dict[str, dict[str, Any]], Finished]:
        """``cleanerd clean`` for the only partition of each topic: ``--json``'s entries by topic, and the process.

        Raises:
            CleanerdError: it failed, or did not clean a topic.
        """
        done = self.run("clean", "--yes", *options, *_partitions(topics), str(self._broker.log_dirs[0]))
        entries = {entry["topic"]: entry for entry in json.loads(done.stdout)["partitions"]}
        for topic in topics:
            outcome = entries.get(topic, {"outcome": "not found", "reason": ""})
            if outcome["outcome"] != "cleaned":
                raise CleanerdError(f"{outcome['outcome']}, not cleaned: {outcome['reason']}", where=topic)
        return entries, done


def _partitions(topics: Iterable[str]) -> list[str]:
    return [part for topic in topics for part in ("--partition", f"{topic}-0")]
