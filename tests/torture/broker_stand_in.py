"""Replaces a broker while a job has a failing call: it holds the lock, and answers like the agent."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.support.fake_agent import FakeAgent
from tests.swap.live_round import held
from tests.torture.jobs import SOCKET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.torture.jobs import Torment, Workspace


@contextmanager
def beside(workspace: Workspace, job: Torment) -> Iterator[None]:
    """Run a stand-in for the broker in a process of its own, if the job has one beside it."""
    if job.broker == "down":
        yield
        return
    ready, reported = os.pipe()
    end, ended = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ended)
        _be_a_broker(workspace, reported, end, agent=job.broker == "agent")
    os.close(reported)
    os.close(end)
    try:
        if os.read(ready, 1) != b"y":
            raise AssertionError("the stand-in for the broker did not start")
        yield
    finally:
        os.close(ready)
        os.close(ended)
        os.waitpid(child, 0)


def _be_a_broker(workspace: Workspace, reported: int, end: int, *, agent: bool) -> None:
    try:
        with held(workspace.logs):
            if not agent:
                os.write(reported, b"y")
                os.read(end, 1)
            else:
                with FakeAgent(workspace.logs, workspace.logs / SOCKET, settings={"segment.bytes": "2500"}):
                    os.write(reported, b"y")
                    os.read(end, 1)
    finally:
        os._exit(0)
