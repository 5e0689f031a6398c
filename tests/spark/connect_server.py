"""A server of Spark Connect: a session in another process, at a port of this machine alone.

python -m tests.spark.connect_server PORT until its standard input ends
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cleanerd_lab.demo.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

READY = "connected to by now"
TOP = Path(__file__).resolve().parents[2]


def serve(port: int) -> None:
    """Serve until standard input ends."""
    from tests.spark.sessions import SHORT, start_session  # noqa: PLC0415 - the client needs none of it

    server = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.memory": "1g",
    }
    session = start_session("local[2,2]", {**SHORT, **server})
    print(READY, flush=True)  # noqa: T201 - the parent process waits for it
    sys.stdin.read()
    session.stop()


@contextmanager
def started_server(**environment: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Its address, as ``remote()`` takes it, and its process, with further ``environment``."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.connect_server", str(port)],
        cwd=TOP,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.strip() == READY:
                break
        assert process.poll() is None, "the server of Spark Connect did not start"
        yield f"sc://127.0.0.1:{port}", process
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
