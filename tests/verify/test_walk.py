"""The walk: every chunk edge gives the same, and damage is reported once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from cleanerd import _kernel
from cleanerd.errors import CleanerdError
from cleanerd.verify import walk as walk_module
from cleanerd.verify.records import hashes_of, read_rows
from cleanerd.verify.walk import Damage, walk
from tests.support.logs import keyed_batch

if TYPE_CHECKING:
    from pathlib import Path

BATCHES = [keyed_batch(10 * row, [(f"k{row}", "v" * 7 * row)]) for row in range(9)]


def _scan(data: np.ndarray, position: int) -> _kernel.Batches:
    return _kernel.scan_headers(data, position, verify_crc=True)


def _walk(path: Path, content: bytes, chunk_bytes: int) -> tuple[list[int], list[Damage]]:
    path.write_bytes(content)
    damages: list[Damage] = []
    found: list[int] = []
    for data, batches in walk(path, len(content), _scan, damages.append, chunk_bytes=chunk_bytes):
        assert len(data) == batches.consumed
        found += batches.base_offset.tolist()
    return found, damages


@pytest.mark.parametrize("chunk_bytes", [1, 17, 61, 100, 150, 1 << 20])
def test_chunk_edges(tmp_path: Path, chunk_bytes: int) -> None:
    content = b"".join(BATCHES)
    assert _walk(tmp_path / "log", content, chunk_bytes) == ([10 * row for row in range(9)], [])
    broken = bytearray(content)
    at = sum(map(len, BATCHES[:4]))
    broken[at + 70] ^= 1
    found, (damage,) = _walk(tmp_path / "log", bytes(broken), chunk_bytes)
    assert found == [0, 10, 20, 30, 50, 60, 70, 80]
    assert (damage.position, damage.offset, damage.size_bytes) == (at, 40, len(BATCHES[4]))


@pytest.mark.parametrize("chunk_bytes", [1, 100, 1 << 20])
def test_ends(tmp_path: Path, chunk_bytes: int) -> None:
    """A truncated batch, an invalid frame, zeros: the walk ends there."""
    content = b"".join(BATCHES[:3])
    found, (cut,) = _walk(tmp_path / "log", content + BATCHES[3][:-1], chunk_bytes)
    assert (found, cut.position, cut.cut, cut.size_bytes) == ([0, 10, 20], len(content), True, 0)
    found, (magic,) = _walk(tmp_path / "log", content + b"\7" * 90, chunk_bytes)
    assert (found, magic.position, magic.cut, magic.zeros) == ([0, 10, 20], len(content), False, False)
    found, (zeros,) = _walk(tmp_path / "log", content + bytes(9_000_000 if chunk_bytes > 1 else 99), chunk_bytes)
    assert (found, zeros.position, zeros.zeros) == ([0, 10, 20], len(content), True)


@pytest.mark.parametrize("every", [1, 2])
def test_every_byte_is_read_about_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """However many batches of a chunk are damaged: the bytes of a file are read about once."""
    good = keyed_batch(0, [("k", "v")])
    bad = good[:-1] + bytes([good[-1] ^ 1])
    content = b"".join(bad if row % every == 0 else good for row in range(600))
    read: list[int] = []
    real = walk_module._read

    def counted(path: Path, file: int, data: np.ndarray, position: int) -> int:
        read.append(real(path, file, data, position))
        return read[-1]

    monkeypatch.setattr(walk_module, "_read", counted)  # the number of bytes read is not visible in any result
    found, damages = _walk(tmp_path / "log", content, 20 * len(good) + 9)
    assert (len(found), len(damages)) == (600 - 600 // every, 600 // every)
    assert sum(read) < 2 * len(content)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(CleanerdError, match="cannot be opened"):
        list(walk(tmp_path / "none", 5, _scan, lambda _damage: None))


def test_hashes_of(tmp_path: Path) -> None:
    """The hash of a key alone equals that of its records."""
    path = tmp_path / "log"
    keys = [f"key-{row}" * (row % 40) for row in range(300)]
    content = keyed_batch(0, [(key, "v") for key in keys], codec=2)
    path.write_bytes(content)
    ((_, rows),) = read_rows(path, len(content), b"0123456789abcdef", lambda _damage: None)
    assert (rows.key_hash == hashes_of([key.encode() for key in keys], b"0123456789abcdef")).all()
    assert len(np.unique(rows.key_hash[:, 0])) == len(set(keys))
