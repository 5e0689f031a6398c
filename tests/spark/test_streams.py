"""A driver's output arrives in cleanerd's own output, complete, in order, and without every start's messages."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cleanerd.spark.streams import Forwarder, StderrServer, adopt_stderr
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

ASKER = """
import os, sys
from cleanerd.spark.streams import adopt_stderr
assert adopt_stderr(sys.argv[1])
os.write(2, b"the driver\\n")
"""
GIVER = """
import os, subprocess, sys
from cleanerd.spark.streams import StderrServer
os.write(2, b"before\\n")
with StderrServer() as giver:
    subprocess.run([sys.executable, "-c", sys.argv[1], giver.address], check=True, stderr=subprocess.DEVNULL)
os.write(1, b"the result\\n")
os.write(2, b"after\\n")
"""


def test_one_file_for_both(tmp_path: Path) -> None:
    """``> file 2>&1``: a second open of the file would have its own position, and both would overwrite each other."""
    target = tmp_path / "out"
    with target.open("wb") as file:
        file.write(b"what was there\n")
        file.flush()
        subprocess.run(
            [sys.executable, "-c", GIVER, ASKER], stdout=file, stderr=file, check=True, timeout=PATIENCE_SECONDS
        )
    assert target.read_bytes() == b"what was there\nbefore\nthe driver\nthe result\nafter\n"


def test_a_pipe_and_no_reader() -> None:
    """A pipe is passed on as well; without a reader the driver keeps its own."""
    done = subprocess.run(
        [sys.executable, "-c", GIVER, ASKER], capture_output=True, check=True, timeout=PATIENCE_SECONDS
    )
    assert done.stderr == b"before\nthe driver\nafter\n"
    with StderrServer() as giver:
        pass
    assert not adopt_stderr(giver.address)
    assert not adopt_stderr("")


PRELUDE = b"""WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/22 03:51:46 INFO SparkContext: Running Spark version 4.3.0
26/11/22 03:51:46 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform...
26/11/22 03:51:46 WARN Utils: Your hostname resolves to a loopback address
Setting Spark log level to "ERROR".
"""
MESSAGES = b"""26/11/22 03:51:46 ERROR SparkContext: Error initializing SparkContext.
26/11/22 03:51:46 WARN TaskSetManager: Lost task 0.0
Error: Unrecognized option: --nope
without an end"""


@pytest.mark.parametrize("whole", [False, True])
def test_prelude(whole: bool, tmp_path: Path) -> None:
    """The messages of every start are left out, unless Spark's log was requested.

    All other output of Java is passed on.
    """
    target = tmp_path / "stderr"
    saved = os.dup(2)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.dup2(descriptor, 2)
        Forwarder(io.BytesIO(PRELUDE + MESSAGES), whole=whole).finish()
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(descriptor)
    assert target.read_bytes() == (PRELUDE + MESSAGES if whole else MESSAGES)
