"""Sizes of the benchmark logs, repetitions, and the place of the results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from cleanerd.config.units import parse_size

SIZE_BYTES: Final = parse_size(os.environ.get("BENCH_SIZE", "500MiB"))
REPEAT: Final = int(os.environ.get("BENCH_REPEAT", "4"))
SEGMENTS: Final = 4
RESULTS: Final = Path(__file__).resolve().parents[2] / ".cache" / "bench"
