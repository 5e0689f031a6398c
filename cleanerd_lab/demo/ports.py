"""Free ports of 127.0.0.1 for servers, which no other process takes before they listen.

The kernel uses its range of ephemeral ports for outgoing connections, so a free port in it may be taken at any moment.
Several processes search for ports at once, so each port is claimed.
"""

from __future__ import annotations

import os
import random
import socket
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_OUTGOING: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL: Final = (32_768, 60_999)
_FIRST: Final = 10_000
_CLAIMS: Final = 32
"""How many claims are held; the servers of older ones listen by now."""

_claims: Final[deque[int]] = deque()


def free_port(ports: Sequence[int] | None = None) -> int:
    """A port without a listener, which no other process gets from here for a while.

    ``ports``: the candidates; None: ports outside of the kernel's ephemeral range.

    Raises:
        OSError: there is none.
    """
    ports = ports or _ports()
    start = random.SystemRandom().randrange(len(ports))  # tests seed the other random generator
    for step in range(len(ports)):
        port = ports[(start + step) % len(ports)]
        if _is_free(port) and _claim(port):
            return port
    raise OSError(f"no port of 127.0.0.1 is free between {ports[0]} and {ports[-1]}")


def _ports() -> range:
    """Ports outside of the kernel's ephemeral range; all from 10,000 if it reserves none."""
    try:
        low, high = map(int, _OUTGOING.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        low, high = _USUAL
    return max(range(_FIRST, low), range(high + 1, 65_536), key=len) or range(_FIRST, 65_536)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _claim(port: int) -> bool:
    """Claim a port by an abstract socket name, which ends with this process."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0cleanerd-lab-port-{port}")
    except OSError:
        claim.close()
        return False
    _claims.append(claim.detach())
    if len(_claims) > _CLAIMS:
        os.close(_claims.popleft())
    return True
