"""Run ``cleanerd inspect``, and files to run it on."""

import json
from pathlib import Path
from typing import Any

import pytest

from cleanerd.cli.main import run

GOLDEN = Path(__file__).parent.parent / "format" / "golden"
RELEASES = ["kafka-3.9.2", "kafka-4.3.1"]
LOG = "00000000000000000000.log"
SECRETS = ["hunter2", "alice", "bob", "ScramLoginModule"]

Capture = pytest.CaptureFixture[str]


def inspected(capsys: Capture, path: Path, *options: str, code: int = 0) -> dict[str, Any]:
    """The JSON output; the exit code is checked."""
    assert run(["inspect", str(path), "--json", *options]) == code
    out = capsys.readouterr().out
    document = json.loads(out)
    assert isinstance(document, dict)
    assert next(iter(document)) == "schema"
    assert document["schema"] == 1
    return document


def shown(capsys: Capture, path: Path, *options: str, code: int = 0) -> str:
    """The text."""
    assert run(["inspect", str(path), *options]) == code
    return capsys.readouterr().out


def segment(tmp_path: Path, *batches: bytes, name: str = LOG) -> Path:
    path = tmp_path / name
    path.write_bytes(b"".join(batches))
    return path
