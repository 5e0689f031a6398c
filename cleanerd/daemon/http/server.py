"""The daemon's HTTP server: metrics, health, status and the status page. It only reads, and only from memory.

Everything but ``/explain`` comes from the current :class:`DaemonView`. Requests cannot change anything: methods other
than GET and HEAD are refused. Bodies are made in the server's own thread, so that they and cleanings do not delay each
other. Large bodies are sent in pages of one shared object, and the work for a client ends with its connection.

Every client that reaches the address is served; by default that is the loopback address. There a web page could use a
browser by letting its own name point to 127.0.0.1, so on loopback only this host's own names are accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import gzip
import html
import ipaddress
import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog
from aiohttp import payload, web

from cleanerd.admin.cluster_compare import ClusterComparison, comparison_lines
from cleanerd.daemon.http.connections import Connections
from cleanerd.daemon.http.explanations import Explanations
from cleanerd.daemon.http.hosts import Hosts, local_host_names
from cleanerd.daemon.http.metrics import DEFAULT_PARTITIONS_MAX, Exposition
from cleanerd.daemon.http.page_files import PageFile, PageFiles
from cleanerd.daemon.http.status_body import StatusBody, encode
from cleanerd.daemon.log_events import LogEvent
from cleanerd.daemon.with_timeout import with_timeout
from cleanerd.errors import CleanerdError, ConfigError, RefusedError
from cleanerd.humanize import as_utf8

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from aiohttp.abc import AbstractStreamWriter

    from cleanerd.daemon.view import DaemonView, PartitionView

_T = TypeVar("_T")

_log = structlog.get_logger()

_protocol_log = logging.getLogger("cleanerd.daemon.http.protocol")
"""Malformed HTTP gets a 400 without a traceback, with which any client could fill the journal."""
_protocol_log.setLevel(logging.CRITICAL + 1)

EXPLAIN_SECONDS: Final = 30.0
"""How long ``/explain`` may take: it reads the partition's files."""

_PAGE_BYTES: Final = 64 * 1024
_GZIP_FROM_BYTES: Final = 1024
_KEEPALIVE_SECONDS: Final = 75.0
_STOP_SECONDS: Final = 2.0

_PAGES: Final = frozenset({"/", "/running", "/history", "/quarantine", "/log-dirs"})

_HEADERS: Final = {
    "Server": "cleanerd",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
}

_NOT_YET: Final = "not ready: the log directories have not all been scanned yet\n"


_NO_CLUSTER: Final = "no daemon of another broker is known: set cleanerd.cluster.peers"
_CLUSTER_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Cluster - cleanerd</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<link rel="icon" href="page/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="page/style.css"></head>
<body><main class="wrap"><h1>Cluster</h1><p><a href="./">Status of this daemon</a>{json}</p>
<pre class="wide">{text}</pre></main></body></html>
"""

_LISTEN_HINTS: Final = {
    errno.EADDRINUSE: "another process has the port: ss -ltnp names it",
    errno.EACCES: "ports below 1024 are for root: take a higher one",
}
"""Fixes for errors of listening."""

_MAY_PASS: Final = frozenset({errno.EADDRINUSE, errno.EADDRNOTAVAIL})


class HttpServer:
    """Serves the current view on ``listen`` (HOST:PORT; port 0 takes a free one, see ``port``).

    ``view`` must answer at once. ``explain`` receives ``TOPIC-N`` and returns the output of ``cleanerd explain
    --json``; it is called for partitions of the view only, as `Explanations` says. ``hosts``: the names that it answers
    to (:class:`Hosts`); ``own_names``: this host's own, used if none are set. ``cluster``: the view of all daemons of
    the cluster, None without peers. ``explain_seconds``: limit for an answer of ``explain``. ``connections``: makes
    their manager.

    Raises:
        ConfigError: ``listen`` is not an address, or (by ``start``) cannot be bound.
    """

    def __init__(
        self,
        listen: str,
        view: Callable[[], DaemonView],
        explain: Callable[[str], Awaitable[dict[str, Any]]],
        *,
        cluster: Callable[[], ClusterComparison | None] = lambda: None,
        kafka_names: bool = True,
        partitions_max: int = DEFAULT_PARTITIONS_MAX,
        hosts: Collection[str] = (),
        own_names: Callable[[], Collection[str]] = local_host_names,
        explain_seconds: float = EXPLAIN_SECONDS,
        connections: Callable[[web.Server], Connections] = Connections,
    ) -> None:
        self._own_names = own_names
        self._explain_seconds = explain_seconds
        self._make_connections = connections
        self._host, self._port = parse_listen(listen)
        self._listen = listen
        self._view = view
        self._cluster = cluster
        self._explanations = Explanations(explain)
        self._exposition = Exposition(view, kafka_names=kafka_names, partitions_max=partitions_max)
        self._status = StatusBody()
        self._page = PageFiles()
        self._thread: ThreadPoolExecutor | None = None
        self._handler: web.Server | None = None
        self._connections: Connections | None = None
        self._server: asyncio.Server | None = None
        self._names = hosts
        self._hosts = Hosts(hosts, loopback_only=True)
        self._routes: dict[str, Callable[[web.BaseRequest], Awaitable[web.Response]]] = {
            "/metrics": self._metrics,
            "/livez": self._livez,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/status": self._full_status,
            "/cluster": self._cluster_page,
            "/cluster.json": self._cluster_json,
            **dict.fromkeys(_PAGES, self._index),
        }

    @property
    def port(self) -> int:
        """The port, once started."""
        return self._port

    @property
    def address(self) -> str:
        """The URL of the status page, once started; for all addresses, that of the loopback."""
        host = self._host or "localhost"
        if host in {"0.0.0.0", "::"}:  # noqa: S104 - is compared, not listened on
            host = "localhost"
        return f"http://{f'[{host}]' if ':' in host else host}:{self._port}/"

    async def start(self) -> None:
        """Listen. A stopped server can be started again."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cleanerd-http")
        self._handler = web.Server(
            self._answer,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=_KEEPALIVE_SECONDS,
            logger=_protocol_log,
        )
        self._connections = self._make_connections(self._handler)
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._connections, self._host, self._port)
        except (OSError, UnicodeError) as error:  # a name with an empty label cannot be encoded for DNS
            self._thread.shutdown(wait=False)
            raise _not_listening(self._listen, error) from error
        addresses = [_address_of(each) for each in self._server.sockets]
        self._port = addresses[0][1]
        loopback_only = all(ipaddress.ip_address(host).is_loopback for host, _ in addresses)
        self._hosts = Hosts(self._names, loopback_only=loopback_only, own=self._own_names)
        self._connections.start()

    async def stop(self) -> None:
        """Stop listening and close all connections, so that a slow reader does not delay the daemon's end."""
        if self._server is None or self._handler is None or self._connections is None or self._thread is None:
            return
        self._server.close()
        self._explanations.stop()
        self._handler.pre_shutdown()
        with contextlib.suppress(TimeoutError):
            await with_timeout(_STOP_SECONDS, self._handler.shutdown(_STOP_SECONDS))
        await self._connections.stop()
        await self._server.wait_closed()
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._server = None

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._connections is not None:
            self._connections.used(request.protocol)
        try:
            response: web.StreamResponse = await self._route(request)
        except Exception:  # noqa: BLE001 - a bug in what shows; what cleans goes on
            _log.exception(LogEvent.REQUEST_FAILED, path=request.path)
            response = web.Response(status=500, text="Internal error: see the log of cleanerd.\n")
        for name, value in _HEADERS.items():
            response.headers[name] = value
        response.headers.setdefault("Cache-Control", "no-store")
        pages = response.body if isinstance(response, web.Response) else None
        if isinstance(pages, _Pages) and request.method == "GET" and self._connections is not None:
            pages.sent = self._connections.sends(request.protocol, pages.body)
        return response

    async def _route(self, request: web.BaseRequest) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            return web.Response(
                status=405, text="This server is read-only: use GET or HEAD.\n", headers={"Allow": "GET, HEAD"}
            )
        refusal = self._hosts.refusal(request.headers.getall("Host", ()))
        if refusal is not None:
            return web.Response(status=refusal[0], text=refusal[1])
        answer = self._routes.get(request.path)
        if answer is not None:
            return await answer(request)
        section, _, name = request.path[1:].partition("/")
        return await self._one(request, section, name)

    async def _one(self, request: web.BaseRequest, section: str, name: str) -> web.Response:
        """``/ROOM/NAME``: a partition, or a file of the page."""
        if section == "page":
            found = self._page.get(name)
            return _nothing() if found is None else _file(request, found)
        if section == "partition" and name and "/" not in name:
            return _file(request, self._page.index(depth=1))
        if section not in ("status", "explain"):
            return _nothing()
        view = self._view()
        partition = view.named(name)
        if partition is None:
            return _error(404, "no compacted partition of this name", hint="/status lists those that there are")
        if section == "explain":
            return await self._explain(request, name)
        return _json(request, _status_of(view, partition))

    async def _index(self, request: web.BaseRequest) -> web.Response:
        return _file(request, self._page.index(depth=0))

    async def _metrics(self, request: web.BaseRequest) -> web.Response:
        accept = request.headers.get("Accept", "")

        def render() -> web.Response:
            body, content_type = self._exposition.render(accept)
            return _packed(request, body, {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"})

        return await self._in_thread(render)

    async def _livez(self, _request: web.BaseRequest) -> web.Response:
        """Alive if the daemon answers: a restart would fix no other fault."""
        return web.Response(text="ok\n")

    async def _healthz(self, _request: web.BaseRequest) -> web.Response:
        view = self._view()
        if view.healthy:
            return web.Response(text="ok\n")
        return web.Response(status=503, text=as_utf8(f"unhealthy: {view.unhealthy_reason or 'no reason known'}\n"))

    async def _readyz(self, _request: web.BaseRequest) -> web.Response:
        view = self._view()
        if not view.ready:
            return web.Response(status=503, text=_NOT_YET)
        if not view.healthy:
            return web.Response(status=503, text=as_utf8(f"not ready: {view.unhealthy_reason or 'no reason known'}\n"))
        how = (f"{each.path}: {each.mode}: {each.error or each.mode_reason}\n" for each in view.log_dirs)
        return web.Response(text=as_utf8("ready\n" + "".join(how)))

    async def _full_status(self, request: web.BaseRequest) -> web.Response:
        body = await self._in_thread(functools.partial(self._status.of, self._view()))
        headers = {"Content-Type": "application/json", "ETag": f'W/"{body.etag}"', "Vary": "Accept-Encoding"}
        if _has(request, body.etag):
            return web.Response(status=304, headers=headers)
        return _packed(request, body.plain, headers, zipped=body.zipped)

    async def _cluster_page(self, _request: web.BaseRequest) -> web.Response:
        found = await self._in_thread(self._cluster)
        lines = [_NO_CLUSTER] if found is None else comparison_lines(found)
        as_json = "" if found is None else ', <a href="cluster.json">JSON</a>'
        page = _CLUSTER_PAGE.format(text=html.escape(as_utf8("\n".join(lines))), json=as_json)
        return web.Response(text=page, content_type="text/html")

    async def _cluster_json(self, request: web.BaseRequest) -> web.Response:
        found = await self._in_thread(self._cluster)
        if found is None:
            return _error(404, _NO_CLUSTER, hint="see cleanerd.cluster.peers")
        return _json(request, {"schema": 1, **found.to_json()})

    async def _explain(self, request: web.BaseRequest, name: str) -> web.Response:
        try:
            document = await self._explanations.of(name, self._explain_seconds)
        except TimeoutError:
            return _error(
                504, f"no answer within {self._explain_seconds:g} s", hint="is the disk of its log directory slow?"
            )
        except CleanerdError as error:
            status = 409 if isinstance(error, RefusedError) else 500
            return _error(status, error.message, where=error.where, hint=error.hint)
        return _json(request, {"schema": 1, **document})

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


class _Pages(payload.Payload):
    """A large ``body`` that many clients share: at most a page of it is copied per client (D-13).

    ``sent`` is called when a client has received it or disconnected.
    """

    def __init__(self, body: bytes, content_type: str) -> None:
        super().__init__(body, content_type=content_type)
        self._size = len(body)
        self.body = body
        self.sent: Callable[[], object] = lambda: None

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.body.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        pages = memoryview(self.body)
        try:
            for start in range(0, len(pages), _PAGE_BYTES):
                await writer.write(pages[start : start + _PAGE_BYTES])
        finally:
            self.sent()

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write all of it: its length is in the response's headers."""
        del content_length
        await self.write(writer)


def _not_listening(listen: str, error: OSError | UnicodeError) -> ConfigError:
    """The error; a temporary one has the exit code of a refusal, after which systemd restarts the unit.

    At boot an address or the name server may come later than the daemon; a port becomes free when its owner ends.
    """
    number = getattr(error, "errno", None) or 0
    refusal = ConfigError(
        f"cannot listen there: {getattr(error, 'strerror', None) or 'no name of a host'}",
        where=f"cleanerd.http.listen = {listen}",
        hint=_LISTEN_HINTS.get(number, "name an address of this host"),
    )
    if number in _MAY_PASS or isinstance(error, socket.gaierror):
        refusal.exit_code = RefusedError.exit_code
    return refusal


def parse_listen(listen: str) -> tuple[str | None, int]:
    """HOST:PORT or :PORT for all addresses (host None); an IPv6 address with or without brackets.

    Raises:
        ConfigError: it is malformed.
    """
    host, colon, port = listen.strip().rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if ":" in host and not _is_address(host):
        colon = ""
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigError(
            f"{listen!r} is not HOST:PORT",
            where="cleanerd.http.listen",
            hint="for example 127.0.0.1:10280 or [::1]:10280",
        )
    return host or None, int(port)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _address_of(listening: socket.socket) -> tuple[str, int]:
    host, port = listening.getsockname()[:2]
    return str(host).partition("%")[0], int(port)


def _status_of(view: DaemonView, partition: PartitionView) -> dict[str, Any]:
    """A partition with all its facts in the view."""
    name = (partition.topic, partition.partition)
    return {
        "schema": 1,
        "made_ms": view.made_ms,
        **partition.to_json(),
        "last_cleaning": None if partition.last_cleaning is None else partition.last_cleaning.to_json(),
        "history": [each.to_json() for each in view.history if (each.topic, each.partition) == name],
    }


def _has(request: web.BaseRequest, etag: str) -> bool:
    """Whether the client has it already; a weak comparison, because the compressed body has the same tag (RFC 9110)."""
    return any(each.value in (etag, "*") for each in request.if_none_match or ())


def _packed(
    request: web.BaseRequest, body: bytes, headers: dict[str, str], *, zipped: bytes | None = None
) -> web.Response:
    """The response, compressed with gzip if the client accepts it and it saves enough."""
    if len(body) >= _GZIP_FROM_BYTES and _takes_gzip(request.headers.get("Accept-Encoding", "")):
        body = gzip.compress(body, 1, mtime=0) if zipped is None else zipped
        headers = {**headers, "Content-Encoding": "gzip"}
    large = len(body) > _PAGE_BYTES
    return web.Response(body=_Pages(body, headers["Content-Type"]) if large else body, headers=headers)


def _takes_gzip(accept: str) -> bool:
    for each in accept.lower().split(","):
        coding, _, quality = each.partition(";")
        if coding.strip() == "gzip":
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _file(request: web.BaseRequest, file: PageFile) -> web.Response:
    headers = {
        "Content-Type": file.content_type,
        "Cache-Control": "no-cache",
        "ETag": f'W/"{file.etag}"',
        "Vary": "Accept-Encoding",
    }
    if _has(request, file.etag):
        return web.Response(status=304, headers=headers)
    return _packed(request, file.body, headers, zipped=file.zipped)


def _json(request: web.BaseRequest, document: dict[str, Any]) -> web.Response:
    headers = {"Content-Type": "application/json", "Vary": "Accept-Encoding"}
    return _packed(request, encode(document).encode(), headers)


def _error(status: int, message: str, *, where: str | None = None, hint: str | None = None) -> web.Response:
    document = {"schema": 1, "error": {"message": message, "where": where, "hint": hint}}
    return web.Response(status=status, text=encode(document), content_type="application/json")


def _nothing() -> web.Response:
    return web.Response(
        status=404, text="Not found. There are / (the status page), /status, /metrics, /livez, /healthz and /readyz.\n"
    )
