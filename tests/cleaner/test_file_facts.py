"""A segment's properties come from its file, and only when all of it was read: it may be deleted by then."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner import cleaner
from cleanerd.cleaner.verify import verify_staged
from tests.cleaner.driver import clean_all
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import keyed_batch

if TYPE_CHECKING:
    from pathlib import Path

NOW_MS = 1_800_000_000_000


@pytest.mark.slow
@pytest.mark.parametrize("what", ["gone", "replaced"])
@pytest.mark.parametrize("base", [0, 2])
def test_a_segment_that_changes_while_it_is_staged(
    tmp_path: Path, what: str, base: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-06: retention deletes a segment, a broker's cleaner replaces it. The log is planned again, not set aside."""
    segments = {at: b"".join(keyed_batch(at + row, [("k", f"v{at + row}")]) for row in range(2)) for at in (0, 2, 4)}
    log_dir = make_log_dir(tmp_path / "d", {"orders-0": Partition({**segments, 6: b""})})
    log = log_dir / "orders-0" / f"{base:020d}.log"
    verified: list[object] = []

    def meanwhile(*args: object, **decided: int) -> None:
        verify_staged(*args, **decided)  # type: ignore[arg-type]
        if not verified and what == "gone":
            for suffix in (".log", ".index", ".timeindex"):
                log.with_suffix(suffix).unlink()
        elif not verified:
            status = log.stat()
            other = log.with_suffix(".other")
            other.write_bytes(log.read_bytes())
            os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
            other.rename(log)
        verified.append(args)

    monkeypatch.setattr(cleaner, "verify_staged", meanwhile)  # the log changes at this very moment
    result = clean_all(log_dir, NOW_MS)
    assert result.outcome == "cleaned"
    assert result.records_kept == 1
    assert len(verified) == 2
