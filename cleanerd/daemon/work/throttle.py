"""Limits the read and write rates of cleanings (C-83): three rates that all workers share."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.config.load import Settings

_BURST_SECONDS: Final = 0.1
"""The unused rate of this time may be used at once, because chunks are larger than a tick."""

_SLICE_SECONDS: Final = 0.1
"""How often a waiting thread checks whether the rates changed or the cleaning has to stop."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per second, None without a limit. ``total`` limits reads and writes together, as Kafka's setting."""

    read: int | None = None
    write: int | None = None
    total: int | None = None

    @classmethod
    def of(cls, settings: Settings) -> Rates:
        """The rates from the settings."""
        daemon = settings.daemon
        return cls(
            daemon.cleanerd_io_read_max_bytes_per_second,
            daemon.cleanerd_io_write_max_bytes_per_second,
            daemon.log_cleaner_io_max_bytes_per_second,
        )


class Throttle:
    """Counts bytes and delays threads above the rate; thread-safe."""

    def __init__(
        self,
        rates: Rates,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._sleep = sleep
        self._rates = rates
        self._generation = 0
        self._free_at = {"read": 0.0, "write": 0.0, "total": 0.0}
        self.read_bytes = 0
        self.written_bytes = 0
        self.waited_seconds = 0.0

    def set_rates(self, rates: Rates) -> None:
        """Set the rates; waiting threads continue at once with the new ones."""
        with self._lock:
            if rates == self._rates:
                return
            self._rates = rates
            self._generation += 1
            self._free_at = dict.fromkeys(self._free_at, 0.0)

    def read(self, count: int, check: Callable[[], None]) -> None:
        """Count ``count`` read bytes, and wait until the rate allows them. ``check`` may raise to end the wait."""
        with self._lock:
            self.read_bytes += count
        self._take(count, {"read": self._rates.read, "total": self._rates.total}, check)

    def wrote(self, count: int, check: Callable[[], None]) -> None:
        """Count ``count`` written bytes, and wait as :meth:`read`."""
        with self._lock:
            self.written_bytes += count
        self._take(count, {"write": self._rates.write, "total": self._rates.total}, check)

    def _take(self, count: int, rates: dict[str, int | None], check: Callable[[], None]) -> None:
        with self._lock:
            now = self._clock()
            until = now
            for name, rate in rates.items():
                if rate is not None:
                    begin = max(self._free_at[name], now - _BURST_SECONDS)
                    self._free_at[name] = begin + count / rate
                    until = max(until, self._free_at[name])
            generation = self._generation
        while (left := until - self._clock()) > 0 and generation == self._generation:
            check()
            wait = min(left, _SLICE_SECONDS)
            self._sleep(wait)
            with self._lock:
                self.waited_seconds += wait
