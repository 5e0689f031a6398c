"""Minimal inputs that coverage-guided hostile bytes found; and the driver itself, which must not miss such inputs."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cleanerd.format import names
from tests.torture import led
from tests.torture.hostile import Reader, outcome, readers
from tests.torture.led import Count, Run
from tests.torture.line_coverage import Lines
from tests.torture.mutate import Mutator
from tests.torture.spark_readers import PROTOBUF_DESCRIPTOR

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEEP = b"[" * 100_000
HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
RECORD = '{"type":"record","name":"a","fields":[{"name":"b","type":%s}]}'

FOUND = {
    "status of a daemon": [b"HTTP/1.1 4x1 No\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", HEAD + DEEP],
    "answer of the daemon": [
        b"[]", b'{"ok":true}', b'{"ok":true,"result":[[]]}', b'{"code":1e999}', b'{"code":"x"}', DEEP
    ],
    "mounts": [b"30 28 0:26 / / rw -  \n"],
    "packed columns": [
        b"CCOL" + len(text).to_bytes(4, "little") + bytes(8) + text + bytes(4)
        for text in (
            b"{", b"[]", DEEP, b'{"numbers":{},"columns":[["a","O",1]]}', b'{"numbers":{},"columns":[["a","<u8",9]]}'
        )
    ] + [b"CCOZ" + bytes(4) + b"\xff" * 8 + bytes(4)],
    "stored state of a table": [DEEP, b"[]"],
    "kept segments, for audit": [DEEP, b'{"entry":[]}', b'{"entry":{"log_dir":[],"kept":1}}'],
    "options of the source": [json.dumps({"path": "/a", "startingOffsets": "[" * 100_000}).encode()],
    "Avro schema": [
        (RECORD % "[[]]").encode(), RECORD.replace('"b"', "{}").encode() % b'"int"',
        RECORD.replace('"b"', "5").encode() % b'"int"',
    ],
    "Avro schema of a writer": [(RECORD % r'"\ud800"').encode(), (RECORD % '[{"name":{}}]').encode()],
    "JSON schema": [b'{"type":["number",{}]}', rb'{"properties":{"\ud800":{}}}'],
    "Protobuf descriptor": [
        b"\x0a\1a\x1a\2\xff\xfe\x22\3\x0a\1b", PROTOBUF_DESCRIPTOR.replace(b"\x18\x06 \x03", b"\x18\x06 \x01")
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def known() -> Iterator[Mapping[str, Reader]]:
    with readers() as found:
        yield found


@pytest.mark.parametrize("name", FOUND)
def test_reader_inputs_that_raised_another_exception(known: Mapping[str, Reader], name: str) -> None:
    """Inputs that made a reader raise an exception outside of its contract."""
    for data in FOUND[name]:
        assert not outcome(known[name], data), data[:80]


def test_each_reader_takes_a_seed(known: Mapping[str, Reader]) -> None:
    """A reader that refuses all of its seeds tests nothing behind its first check."""
    for reader in known.values():
        assert reader.seeds
        refused = 0
        for data in reader.seeds:
            try:
                reader.read(data)
            except Exception:  # noqa: BLE001 - which one, test_reader_inputs_that_raised_another_exception and the attack say
                refused += 1
        assert refused < len(reader.seeds) or reader.name == "client properties", reader.name


def _deep(data: bytes) -> None:
    """Fails after three letters, each with a line of its own: only guidance by lines finds it."""
    if data[:1] == b"a":
        if data[1:2] == b"b":
            if data[2:3] == b"c":
                raise ZeroDivisionError
            return
        return
    return


TOP = str(Path(__file__).parent)


def _play(reader: Reader, place: Path, count: int, tick_seconds: float = 0.25) -> tuple[Count, list[str]]:
    """Guided by this file's lines only: those of the torture code, such as a timer's, would keep random inputs."""
    run = Run(reader, 1, place, ours=__file__, top=TOP, tick_seconds=tick_seconds)
    wrong = run.play(count)
    return run.count, wrong


@pytest.mark.long
def test_inputs_that_reach_a_new_line_are_mutated_further(tmp_path: Path) -> None:
    """Random inputs would need some hundred million tries; inputs on the way, and failing ones, are kept."""
    count, wrong = _play(Reader("deep", (b"xyz",), _deep), tmp_path, 60_000)
    assert count.wrong
    assert count.inputs == 60_000
    assert count.lines_last > count.lines_first
    assert "ZeroDivisionError" in wrong[0]
    kept = {path.read_bytes()[:3] for path in (tmp_path / "deep").iterdir()}
    assert b"abc" in kept
    assert f"--reader 'deep' --input {tmp_path / 'deep'}" in wrong[0]


def test_a_run_continues_where_it_stopped(tmp_path: Path) -> None:
    """A million in total, over several runs; after a change of code or seed none of them counts."""
    reader = Reader("deep", (b"xyz",), _deep)
    _play(reader, tmp_path, 3000)
    path = tmp_path / "deep.json"
    assert _play(reader, tmp_path, 3000)[0].inputs == 3000
    assert Count.load(path, 1, TOP).inputs == 3000
    assert Count.load(path, 2, TOP).inputs == 0
    changed = json.loads(path.read_text())
    assert "test_readers.py" in changed["files"]
    path.write_text(json.dumps(changed | {"files": {"test_readers.py": "other"}}))
    assert Count.load(path, 1, TOP).inputs == 0


def test_an_input_that_takes_too_long_is_reported(tmp_path: Path) -> None:
    """More than a second of CPU time is reported, although no single input is timed."""

    def read(data: bytes) -> None:
        while data[:1] == b"!":
            pass

    _, wrong = _play(Reader("slow", (b"!", b"x"), read), tmp_path, 10, tick_seconds=0.02)
    assert "TooSlowError on b'!" in wrong[0]


def test_lines_are_printed_once() -> None:
    """Lines that ran before the block count when they run in it, once."""

    def read() -> str:
        return names.file_name(7, ".log")

    read()
    with Lines() as seen:
        read()
        first = seen.reached
        read()
        assert seen.reached == first > 0
    assert {Path(each).name for each in seen.files} == {"names.py"}
    with Lines() as again:
        read()
    assert again.reached == first


def test_coverage_without_sys_monitoring(capsys: pytest.CaptureFixture[str]) -> None:
    """The run continues with this interpreter, and reports that."""
    assert led.quickest_python(fast=False, interpreter=lambda _minor: None) == sys.executable
    assert "no Python 3.13 or 3.12" in capsys.readouterr().err


@pytest.mark.long
def test_a_process_that_dies_leaves_its_input(tmp_path: Path) -> None:
    """An input that ends the process cannot be reported by it: the driver's file has it."""
    code = (
        "import os, pathlib; from tests.torture import led; from tests.torture.hostile import Reader\n"
        "led.Run(Reader('dies', (b'last words',), lambda data: os._exit(9)), 1, pathlib.Path(os.sys.argv[1])).play(5)\n"
    )
    died = subprocess.run([sys.executable, "-c", code, tmp_path], cwd=led.TOP, check=False)
    assert died.returncode == 9
    assert led.last_input(tmp_path / "dies") == b"last words"


def test_an_odd_document_leaves_its_seed_as_it_was() -> None:
    """The parsed seed is changed in place and restored, with the order of its keys.

    So the next input depends on the seed only.
    """
    seed = json.dumps({"a": {"b": [1, {"c": None}], "d": "x"}, "e": 5}).encode()
    once, twice = Mutator([seed]), Mutator([seed])
    for number in range(300):
        once.next(random.Random(number))
    for number in range(300, 400):
        assert once.next(random.Random(number)) == twice.next(random.Random(number))
