"""A short run of every attack of ``make torture``, so that they keep working."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.torture.calls_bench import Done, left_open
from tests.torture.loader_rules import as_loaded, leftovers
from tests.torture.shim import FAULTS

if TYPE_CHECKING:
    from collections.abc import Sequence

QUICK_READERS = ("producer snapshot", "meta.properties", "metadata record", "batch", "manifest", "state", "clock.json")
TOP = Path(__file__).resolve().parents[2]


def run(module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command: Sequence[str] = [sys.executable, "-m", f"tests.torture.{module}", *arguments]
    return subprocess.run(
        command, cwd=TOP, text=True, capture_output=True, check=False, env={**os.environ, **environment}
    )


@pytest.mark.parametrize(
    ("job", "fault", "call"), [("clean", "EIO", 40), ("apply", "ENOSPC", 60), ("undo", "EMFILE", 25)]
)
def test_a_call_fails(job: str, fault: str, call: int) -> None:
    """U-29, U-38, OP-10: one of clean, apply and undo each; see `system_calls`."""
    done = run("system_calls", "--job", job, "--fault", fault, "--call", str(call))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.timeout(900)
def test_some_calls_fail() -> None:
    """U-29, U-38, OP-10: a random sample of clean, apply and undo."""
    jobs = [word for job in ("clean", "apply", "undo") for word in ("--job", job)]
    done = run("system_calls", *jobs, "--sample", "25", "--seed", "15")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "25 played, 0 wrong" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("jobs", "cases"), [(("verify",), 1), pytest.param((), 60, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
)
def test_a_fork_ends_as_a_process_does(jobs: tuple[str, ...], cases: int) -> None:
    """OP-10: the same number of calls, the same output, exit code, descriptors and log."""
    of_jobs = [word for job in jobs for word in ("--job", job)]
    done = run("system_calls", *of_jobs, "--against-processes", str(cases), "--seed", "15")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{cases} cases, 0 differ" in done.stdout


def test_only_an_in_progress_marker_may_stay_open_and_only_while_a_fault_lasts() -> None:
    """U-35: a marker file that cannot be removed stays locked, so that no process treats it as that of a killed one."""
    marker, log = "/state/in-progress/D/orders-0", "/logs/orders-0/00000000000000000000.log"
    assert left_open(FAULTS["EIO-lasting"], Done(1, "", [marker])) == []
    assert marker in left_open(FAULTS["EIO"], Done(1, "", [marker]))[0]
    (wrong,) = left_open(FAULTS["EIO-lasting"], Done(1, "", [marker, log]))
    assert log in wrong
    assert marker not in wrong


@pytest.mark.long
def test_an_interrupted_run_continues(tmp_path: Path) -> None:
    """Finished cases are not repeated; a case with a problem is reported at the end."""
    record = tmp_path / "calls.jsonl"
    faults = ("--fault", "lock", "--fault", "EMFILE")
    wanted = ("system_calls", "--job", "verify", *faults, "--workers", "1", "--all", str(record))
    calls = {"calls": {"verify": {"open": 3}}}
    case = {"job": "verify", "fault": "EMFILE", "call": 1, "code": 70, "struck": True, "seconds": 0.1}
    reported = {**case, "at": "open of x", "wrong": ["a bug of cleanerd"]}
    record.write_text(json.dumps(calls) + "\n" + json.dumps(reported) + "\n")
    done = run(*wanted)
    assert "1 cases were played before, 2 are left" in done.stdout, done.stdout + done.stderr
    assert "--job verify --fault EMFILE --call 1\n  open of x\n  a bug of cleanerd" in done.stdout
    assert done.returncode == 1
    assert len(record.read_text().splitlines()) == 4
    assert "| together | 3 | 3 | 3 | 3 | 1 |" in done.stdout


@pytest.mark.long
def test_some_hostile_bytes() -> None:
    """U-33: every reader returns a value or raises a cleanerd error."""
    done = run("hostile", "--count", "150")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("150 inputs, 0 wrong") > 20


@pytest.mark.long
@pytest.mark.parametrize("count", [150, pytest.param(3000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
def test_some_hostile_bytes_led_by_coverage(tmp_path: Path, count: int) -> None:
    """U-33: the same; and guided inputs get further than the seeds."""
    quick = [] if count > 1000 else [word for each in QUICK_READERS for word in ("--reader", each)]
    done = run("led", "--count", str(count), "--place", str(tmp_path), *quick)
    assert done.returncode == 0, done.stdout + done.stderr
    places = re.findall(r"(?m)^.*: [\d,]+ inputs, 0 wrong, ([\d,]+) places, then ([\d,]+),", done.stdout)
    assert len(places) >= len(QUICK_READERS), done.stdout
    first, last = (sum(int(each.replace(",", "")) for each in column) for column in zip(*places, strict=True))
    assert last > 1.1 * first


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.timeout(1800)
def test_make_torture_continues_a_run(tmp_path: Path) -> None:
    """``make torture`` with its real command, with a new seed. ``make test-rest`` has the longer run."""
    seed = str(int.from_bytes(os.urandom(4)))
    variables = {"TORTURE_SEED": seed, "TORTURE_STATE": str(tmp_path / "state.json")}
    done = run("run", **variables, TORTURE_MINUTES="1")
    assert done.returncode == 0, done.stdout + done.stderr
    before = json.loads((tmp_path / "state.json").read_text())["attacks"]
    # A kill takes seconds: a broker starts again.
    slow = {"kills": 1, "broker calls": 1, "spark kills": 1}
    assert all(figures["cases"] >= slow.get(name, 10) for name, figures in before.items()), before
    done = run("run", "--attack", "system calls", **variables, TORTURE_MINUTES="0")
    after = json.loads((tmp_path / "state.json").read_text())["attacks"]
    assert done.returncode == 0, done.stdout + done.stderr
    assert after["system calls"]["steps"] == before["system calls"]["steps"] + 1


def test_the_loader_rules_of_system_calls(tmp_path: Path) -> None:
    """Tests the checks of `system_calls`: swap, cleaned and deleted files count as for Kafka's loader."""
    batch = (7).to_bytes(8, "big") + (49).to_bytes(4, "big") + bytes(7) + bytes(4) + (2).to_bytes(4, "big") + bytes(34)
    for name, data in {
        "00000000000000000007.log": b"old",
        "00000000000000000009.log": b"within",
        "00000000000000000010.log": b"behind",
        "00000000000000000007.log.swap": batch,
        "00000000000000000007.index.swap": b"",
        "00000000000000000010.log.cleaned": b"half",
        "00000000000000000010.log.swap": batch,
        "00000000000000000003.log.deleted": b"gone",
    }.items():
        (tmp_path / name).write_bytes(data)
    assert as_loaded(tmp_path) == {7: {"log": batch, "index": b""}, 10: {"log": b"behind"}}
    assert len(leftovers(tmp_path)) == 5
