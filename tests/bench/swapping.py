"""Cleans the log directories of a running broker in a loop: ``python -m tests.bench.swapping STATE_DIR LOG_DIR...``.

A process of its own, like the daemon: its CPU time must not count as latency of the measured client. It ends with its
input, and then prints the number of swapped groups and the longest wait of appends.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.cli.clean import clean_dir_live
from cleanerd.cli.each_dir import CleaningRequest
from cleanerd.cli.output import Output
from cleanerd.config.load import load_settings
from cleanerd.resolution.selection import EVERYTHING
from cleanerd.state.cleaner_checkpoint import StateStore

PAUSE_SECONDS = 0.1


def main(state_dir: str, *log_dirs: str) -> None:
    """Clean repeatedly."""
    settings = load_settings([], [f"cleanerd.state.dir={state_dir}", "cleanerd.disk.reserve=0"])
    swaps, held_seconds, problems = 0, 0.0, []
    while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
        options = CleaningOptions(now_ms=time.time_ns() // 1_000_000, force=True)
        output = Output(as_json=True, quiet=True)
        store = StateStore(settings.daemon.cleanerd_state_dir)
        request = CleaningRequest(output, settings, [Path(path) for path in log_dirs], EVERYTHING, options, store)
        results, failures = request.each(clean_dir_live)
        swaps += sum(result.groups for result in results)
        held_seconds = max(held_seconds, *(result.seconds.get("held", 0.0) for result in results), 0.0)
        problems += [str(failure) for failure in failures]
        problems += [result.reason for result in results if result.outcome == "quarantined"]
    sys.stdout.write(json.dumps({"swaps": swaps, "held_seconds": held_seconds, "problems": problems}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
