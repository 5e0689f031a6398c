"""Waiting for something, but not for ever."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")


async def within(seconds: float, awaited: Awaitable[T]) -> T:
    """What ``awaited`` gives; it is cancelled when it takes longer.

    Not ``asyncio.wait_for``: before Python 3.12 that loses a cancellation that comes when what it waits for has just
    come, and a task that should have ended goes on.

    Raises:
        TimeoutError: it took longer.
    """
    async with asyncio.timeout(seconds):
        return await awaited
