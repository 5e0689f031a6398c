"""Waits for a result, for a limited time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def with_timeout(seconds: float, awaited: Awaitable[T]) -> T:
    """The result of ``awaited``, which is cancelled when it takes longer.

    Not ``asyncio.wait_for``: before Python 3.12 that can lose a cancellation that comes just after the awaited result,
    so a task that should end continues.

    Raises:
        TimeoutError: it took longer.
    """
    async with asyncio.timeout(seconds):
        return await awaited
