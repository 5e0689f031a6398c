"""A daemon measured from inside: used memory, by owner.

``python -m tests.soak.measured FILE TRACED python -m cleanerd run ...`` writes a line of JSON per second to ``FILE``:
memory that the C library got from the kernel, its used and free parts, Python's own objects, threads. With ``TRACED``
1, ``tracemalloc`` counts too, and a line has the largest growth since the first minute.
"""

from __future__ import annotations

import ctypes
import json
import runpy
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any, Final

SETTLED_SECONDS: Final = 60
EVERY_SECONDS: Final = 90
_FIELDS: Final = (
    "arena",
    "ordblks",
    "smblks",
    "hblks",
    "hblkhd",
    "usmblks",
    "fsmblks",
    "uordblks",
    "fordblks",
    "keepcost",
)


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


def heap_bytes() -> dict[str, int]:
    """By glibc: ``taken`` from the kernel, of which ``in_use`` and ``free``; ``mapped``: large blocks, apart."""
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = _Mallinfo2
    found = library.mallinfo2()
    return {"taken": found.arena, "in_use": found.uordblks, "free": found.fordblks, "mapped": found.hblkhd}


# Never list all objects (gc.get_objects): other threads are in the middle of creating some of them.
def sample() -> dict[str, Any]:
    """This process now, in bytes and counts."""
    rollup = {
        line.partition(":")[0]: int(line.split()[1]) * 1024
        for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    }
    return {
        "at": time.monotonic(),
        **{name: rollup[key] for name, key in (("rss", "Rss"), ("pss", "Pss"), ("anonymous", "Anonymous"))},
        **heap_bytes(),
        "blocks_of_python": sys.getallocatedblocks(),
        "threads": threading.active_count(),
        "traced": tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else 0,
    }


def _write(file: Path) -> None:
    compared, before = time.monotonic(), None
    while True:
        time.sleep(1)
        found = sample()
        since = time.monotonic() - compared
        if tracemalloc.is_tracing() and since > (EVERY_SECONDS if before else SETTLED_SECONDS):
            ours = tracemalloc.Filter(inclusive=False, filename_pattern=__file__)
            now = tracemalloc.take_snapshot().filter_traces([ours])
            if before is not None:
                grown = now.compare_to(before, "lineno")[:25]
                found["grown"] = [(str(each.traceback), each.size_diff, each.count_diff) for each in grown]
            before, compared = before or now, time.monotonic()
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(found) + "\n")


def main() -> None:
    """Measure, and run the rest of the command line."""
    _, file, traced, _python, _dash_m, module, *arguments = sys.argv
    if traced == "1":
        tracemalloc.start(1)
    threading.Thread(target=_write, args=(Path(file),), daemon=True).start()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
