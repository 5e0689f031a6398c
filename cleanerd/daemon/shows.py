"""What the service expects of who shows its view to others: ``cleanerd.daemon.http.HttpServer`` fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cleanerd.daemon.view import DaemonView


class Shows(Protocol):
    """Who shows the view to others: the HTTP server."""

    async def start(self) -> None:
        """Listen."""

    async def stop(self) -> None:
        """Hang up."""


class ShowsFactory(Protocol):
    """Makes one: ``cleanerd.daemon.http.HttpServer``."""

    def __call__(
        self, listen: str, view: Callable[[], DaemonView], explain: Callable[[str], Awaitable[dict[str, Any]]]
    ) -> Shows:
        """One that will listen on ``listen`` (host:port)."""
