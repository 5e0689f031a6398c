"""What hostile bytes led by coverage found, each as small as it gets; and the driver itself: what it must not miss."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.keep_bitmaps import encode_keep
from tests.torture import led, lines
from tests.torture.hostile import Reader, outcome, readers
from tests.torture.led import Count, Run
from tests.torture.lines import Lines
from tests.torture.mutate import Mutator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEEP = b"[" * 100_000
HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
RECORD = '{"type":"record","name":"a","fields":[{"name":"b","type":%s}]}'

FOUND = {
    "status of a daemon": [b"HTTP/1.1 4x1 No\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", HEAD + DEEP],
    "answer of the daemon": [b"[]", b'{"ok":true}', b'{"ok":true,"result":[[]]}', b'{"code":1e999}', b'{"code":"x"}', DEEP],
    "keep bits": [b"CKEP\1\0" + b"\xff" * 16 + bytes(4), b"CKEP\1\0" + b"\xff" * 8 + bytes(12)],
    "packed columns": [
        b"CCOL" + len(text).to_bytes(4, "little") + bytes(8) + text + bytes(4)
        for text in (b"{", b"[]", DEEP, b'{"numbers":{},"columns":[["a","O",1]]}', b'{"numbers":{},"columns":[["a","<u8",9]]}')
    ] + [b"CCOZ" + bytes(4) + b"\xff" * 8 + bytes(4)],
    "what a table remembers": [DEEP, b"[]"],
    "kept segments, for audit": [DEEP, b'{"entry":[]}', b'{"entry":{"log_dir":[],"kept":1}}'],
    "options of the source": [json.dumps({"path": "/a", "startingOffsets": "[" * 100_000}).encode()],
    "Avro schema": [(RECORD % "[[]]").encode(), RECORD.replace('"b"', "{}").encode() % b'"int"', RECORD.replace('"b"', "5").encode() % b'"int"'],
    "Avro schema of a writer": [(RECORD % r'"\ud800"').encode(), (RECORD % '[{"name":{}}]').encode()],
    "JSON schema": [b'{"type":["number",{}]}', rb'{"properties":{"\ud800":{}}}'],
    "Protobuf descriptor": [b"\x0a\1a\x1a\2\xff\xfe\x22\3\x0a\1b"],
}  # fmt: skip


@pytest.fixture(scope="module")
def known() -> Iterator[Mapping[str, Reader]]:
    with readers() as found:
        yield found


@pytest.mark.parametrize("name", FOUND)
def test_found(known: Mapping[str, Reader], name: str) -> None:
    """Input that a reader answered with another exception than its own."""
    for data in FOUND[name]:
        assert not outcome(known[name], data), data[:80]


def test_each_reader_takes_a_seed(known: Mapping[str, Reader]) -> None:
    """A reader that refuses all of its seeds is no attack: nothing behind its first check is reached."""
    for reader in known.values():
        assert reader.seeds
        refused = 0
        for data in reader.seeds:
            try:
                reader.read(data)
            except Exception:  # noqa: BLE001 - which one, test_found and the attack say
                refused += 1
        assert refused < len(reader.seeds) or reader.name == "client properties", reader.name
