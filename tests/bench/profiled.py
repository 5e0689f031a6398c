"""A process that cleans copies of one log one after the other and reports each cost; ``profile.py`` samples it.

``python -m tests.bench.profiled LOG_DIR SEGMENT_BYTES PASSES WORK_DIR ANSWER``
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

KERNEL_VARIABLE: Final = "PROFILE_KERNEL"
_MOVED: Final = ("rchar", "wchar")


@dataclass(frozen=True, slots=True)
class Passes:
    """CPU seconds of every measured pass; its begin and end, monotonic; bytes that one reads and writes.

    ``phases``: elapsed time of index, decide, rewrite and apply in each pass.
    """

    cpu_seconds: list[float]
    spans: list[tuple[float, float]]
    moved_bytes: float
    phases: list[dict[str, float]]

    def cpu_ns_per_record(self, records: int) -> list[float]:
        """Of each pass."""
        return [seconds * 1e9 / records for seconds in self.cpu_seconds]

    def has(self, seconds: float) -> bool:
        """Whether this moment is in a measured pass."""
        return any(start <= seconds <= end for start, end in self.spans)


def passes_of(answer: Path) -> Passes:
    """The output of the process."""
    return Passes(**json.loads(answer.read_text()))


def _use_kernel(path: str) -> None:
    """Load the compiled module from ``path``: one that still has its symbols."""
    spec = importlib.util.spec_from_file_location("cleanerd._kernel", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is not a Python module")
    sys.modules["cleanerd._kernel"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def _moved_bytes() -> int:
    """Bytes of all read and write calls so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return sum(int(value) for name, value in (line.split(": ") for line in lines) if name in _MOVED)


def _clean(
    log_dir: Path, segment_bytes: str, work_dir: Path
) -> tuple[float, tuple[float, float], int, dict[str, float]]:
    # only after the requested kernel is loaded
    from cleanerd.cli.main import run  # noqa: PLC0415
    from cleanerd_lab.bench.generate import PARTITION  # noqa: PLC0415
    from cleanerd_lab.bench.whole import clean_arguments  # noqa: PLC0415

    copy = work_dir / "profiled"
    # segments are never written to, only replaced
    shutil.copytree(log_dir, copy, copy_function=os.link)
    assignments = [f"topics.{PARTITION.topic}.segment.bytes={segment_bytes}"]
    with (
        tempfile.TemporaryDirectory(prefix="cleanerd-state-") as state,
        contextlib.redirect_stdout(io.StringIO()) as out,
    ):
        arguments = clean_arguments(copy, state, assignments)
        moved, began, cpu = _moved_bytes(), time.monotonic(), time.process_time()
        code = run(arguments)
        cpu, span, moved = time.process_time() - cpu, (began, time.monotonic()), _moved_bytes() - moved
    shutil.rmtree(copy)
    if code != 0 or json.loads(out.getvalue())["partitions"][0]["outcome"] != "cleaned":
        raise SystemExit(f"the made-up log was not cleaned: {out.getvalue()}")
    return cpu, span, moved, json.loads(out.getvalue())["partitions"][0]["seconds"]


def main() -> None:
    """One warm-up pass, and the measured ones."""
    log_dir, segment_bytes, passes, work_dir, answer = sys.argv[1:]
    if kernel := os.environ.get(KERNEL_VARIABLE):
        _use_kernel(kernel)
    _clean(Path(log_dir), segment_bytes, Path(work_dir))
    measured = [_clean(Path(log_dir), segment_bytes, Path(work_dir)) for _ in range(int(passes))]
    result = Passes(
        cpu_seconds=[cpu for cpu, *_ in measured],
        spans=[span for _, span, *_ in measured],
        moved_bytes=sum(moved for _, _, moved, _ in measured) / len(measured),
        phases=[phases for *_, phases in measured],
    )
    Path(answer).write_text(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()
