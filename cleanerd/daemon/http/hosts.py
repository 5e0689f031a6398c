"""The host names that the HTTP server answers to, as a defence against DNS rebinding.

A browser sends the name that it looked up as ``Host``, and only a name can be redirected by DNS. So every address of
this host is accepted, and a name only if the settings or the host define it.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

_HOSTS_FILE: Final = Path("/etc/hosts")
_PORT: Final = re.compile(r"[0-9]{0,5}", re.ASCII)
_MOST_NAMES: Final = 20


class Hosts:
    """``names``: ``cleanerd.http.hosts``; if empty, the host's own names are accepted when other hosts may connect.

    ``loopback_only``: only this host can reach the listener, so only loopback addresses are accepted.
    """

    def __init__(
        self,
        names: Collection[str],
        *,
        loopback_only: bool,
        own: Callable[[], Collection[str]] | None = None,
    ) -> None:
        self._loopback_only = loopback_only
        self._names = frozenset(names if names or loopback_only else (own or local_host_names)())

    def refusal(self, headers: Sequence[str]) -> tuple[int, str] | None:
        """Status and text of a refusal for these ``Host`` headers; None: accepted. X-Forwarded-Host is ignored.

        A client without a Host header (HTTP/1.0) is not a browser.
        """
        if len(headers) > 1:
            return 400, "This request has several Host headers. Send one.\n"
        if not headers or self._is_ours(headers[0]):
            return None
        return 421, self._describe()

    def _is_ours(self, header: str) -> bool:
        name = name_of(header)
        if name is None:
            return False
        address = _address(name)
        if address is not None:
            return address.is_loopback or not self._loopback_only
        return name == "localhost" or name.endswith(".localhost") or name in self._names

    def _describe(self) -> str:
        known = sorted(self._names)[:_MOST_NAMES]
        where = "localhost, 127.0.0.1 and [::1]" if self._loopback_only else "its addresses, localhost"
        return (
            f"This server refuses that name in the Host header. It accepts {', '.join([where, *known])}. "
            "To accept another name, set cleanerd.http.hosts. A proxy must send an accepted name.\n"
        )


def name_of(header: str) -> str | None:
    """The host of a Host header in lower case, without port, brackets, zone and final dot; None if it is malformed."""
    text = header.strip().lower()
    if text.startswith("["):
        name, closed, port = text[1:].partition("]")
        name = name.partition("%")[0]
        if not closed or ":" not in name or _address(name) is None or (port and not port.startswith(":")):
            return None
        port = port[1:]
    else:
        name, _, port = text.partition(":")
        name = name.removesuffix(".")
    return name if name and _PORT.fullmatch(port) else None


def local_host_names(hosts_file: Path | None = None, host: str | None = None) -> frozenset[str]:
    """The host's own name, and its other names in ``hosts_file`` (/etc/hosts); no name server is used."""
    own = (host or socket.gethostname()).lower()
    found = {own, own.partition(".")[0]}
    try:
        text = (hosts_file or _HOSTS_FILE).read_text(errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        names = {word.lower() for word in line.partition("#")[0].split()[1:]}
        if own in names:
            found |= names
    return frozenset(found - {""})


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
