"""Standard error of a Spark driver: cleanerd's original stream, and Spark's messages.

``spark-submit`` joins both streams of the driver into standard output, which belongs to the result. So the driver
requests our standard error and gets the open file itself: opened again by name it would have its own position, and both
would overwrite each other in a file. Java's messages come through a pipe, without the lines that every start prints.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import struct
import threading
from typing import IO, Final, Self

from cleanerd.fsio.safe_open import close_quietly

STDERR: Final = 2
_GREETING: Final = b"2"
_PATIENCE_SECONDS: Final = 10.0
_PEER: Final = struct.Struct("3i")

_PRELUDE: Final = re.compile(
    rb"WARNING: Using incubator modules: |Using Spark's default log4j profile: |"
    rb"Setting (?:default|Spark) log level to |To adjust logging level use |"
    rb"[0-9/]{8} [0-9:]{8} (?:INFO |WARN (?:NativeCodeLoader|Utils): )"
)
"""Lines that Spark and Java print at each start, before the requested log level applies."""


class StderrServer:
    """Gives this process's standard error to the first client at ``address`` with this process's user."""

    def __init__(self) -> None:
        self.address = f"cleanerd-spark-{secrets.token_hex(16)}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(f"\0{self.address}")
        self._socket.listen(1)
        threading.Thread(target=self._serve, name="spark-stderr", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes up the thread in accept
        self._socket.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                asker, _ = self._socket.accept()
                with asker:
                    peer = asker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
                    if _PEER.unpack(peer)[1] == os.geteuid():
                        socket.send_fds(asker, [_GREETING], [STDERR])
                        return


def adopt_stderr(address: str) -> bool:
    """Make the standard error of the listener at ``address`` this process's; False without a listener."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
            asker.settimeout(_PATIENCE_SECONDS)
            asker.connect(f"\0{address}")
            _, descriptors, _, _ = socket.recv_fds(asker, len(_GREETING), 1)
    except OSError:
        return False
    for descriptor in descriptors:
        os.dup2(descriptor, STDERR)
        close_quietly(descriptor)
    return bool(descriptors)


class Forwarder:
    """Forwards the lines of ``source`` to standard error: all of them (``whole``) or the useful ones."""

    def __init__(self, source: IO[bytes], *, whole: bool) -> None:
        self._source = source
        self._whole = whole
        self._thread = threading.Thread(target=self._forward, name="spark-lines", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait for the last lines, but not for a leftover process that keeps the pipe open."""
        self._thread.join(_PATIENCE_SECONDS)

    def _forward(self) -> None:
        for line in self._source:
            if self._whole or _PRELUDE.match(line) is None:
                with contextlib.suppress(OSError):
                    os.write(STDERR, line)
