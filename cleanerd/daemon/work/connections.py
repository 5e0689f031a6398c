"""Connections to agents that outlive a job: the next one goes on with it, for as long as one follows the other.

An agent serves few at a time, and whoever has nothing to ask holds none.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cleanerd.apply.swapping_broker import SwappingBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.broker.live_broker import Patience


class Connections:
    """Those that no job uses now. Workers take them and give them back."""

    def __init__(self, patience: Patience | None = None) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        self._free: list[SwappingBroker] = []

    @contextmanager
    def to(self, socket: Path) -> Iterator[SwappingBroker]:
        """The broker behind ``socket``; a block that fails leaves no connection."""
        broker = self._taken(socket) or SwappingBroker(socket, self._patience)
        try:
            yield broker
        except BaseException:
            broker.close()
            raise
        if not broker.is_connected:
            broker.close()
            return
        with self._lock:
            self._free.append(broker)

    def _taken(self, socket: Path) -> SwappingBroker | None:
        with self._lock:
            for broker in self._free:
                if broker.socket == socket:
                    self._free.remove(broker)
                    return broker
        return None

    def close(self) -> None:
        """Hang up wherever no job is at work; more may come afterwards."""
        with self._lock:
            free, self._free = self._free, []
        for broker in free:
            broker.close()
