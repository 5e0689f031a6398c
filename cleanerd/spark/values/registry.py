"""A schema registry that speaks Confluent's REST API.

Only reads. Transient failures (throttling, a broken connection, an incomplete or late answer) are retried. Lasting ones
are an error of the whole query instead of a reason for the side table, because the record may be valid. For https the
environment names files with certificates.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, urlsplit

from cleanerd.errors import CleanerdError, ConfigError, MachineError
from cleanerd.segments.remote import shown_url
from cleanerd.spark.retries import RetryPolicy, number_in
from cleanerd.spark.values.schemas import AVRO, KINDS, MOST_BYTES, NamedSchema, Schema, Schemas

AUTHORITY: Final = "CLEANERD_SCHEMA_REGISTRY_CA"
"""A PEM file with the only trusted certificates; without it, the machine's are trusted."""
CERTIFICATE: Final = "CLEANERD_SCHEMA_REGISTRY_CERTIFICATE"
"""A PEM file: our certificate with its chain; also our key, if no other file has it."""
KEY: Final = "CLEANERD_SCHEMA_REGISTRY_KEY"
KEY_PASSWORD: Final = "CLEANERD_SCHEMA_REGISTRY_KEY_PASSWORD"  # noqa: S105 - the name of a variable


def tls_from_environment() -> ssl.SSLContext | None:
    """The TLS settings from the environment, or None.

    Raises:
        ConfigError: a file cannot be read or has another content, or there is a key without a certificate.
    """
    authority, certificate, key = (os.environ.get(name) or None for name in (AUTHORITY, CERTIFICATE, KEY))
    if authority is None and certificate is None and key is None:
        return None
    if certificate is None and key is not None:
        raise ConfigError("a key, and no certificate", where=f"{KEY}={key}", hint=f"name its file in {CERTIFICATE}")
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise _unusable(AUTHORITY, authority, error) from error
    if certificate is not None:
        try:
            # A key without a password does not need it, and no key may ask on the terminal.
            context.load_cert_chain(certificate, key, lambda: os.environ.get(KEY_PASSWORD, ""))
        except (OSError, ValueError) as error:
            raise _unusable(CERTIFICATE, certificate, error) from error
    return context


def is_final(error: BaseException) -> bool:
    """Whether a connection failed because one side does not trust the other, which a retry does not fix."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        if isinstance(cause, ssl.SSLError) and "ALERT" in str(cause.reason):
            return True
        cause = getattr(cause, "os_error", None) or cause.__cause__ or cause.__context__
    return False


def _unusable(variable: str, path: str | None, error: Exception) -> ConfigError:
    return ConfigError(
        f"cannot be used: {error}",
        where=f"{variable}={path}",
        hint=f"a PEM file that driver and executors have; of an encrypted key the password is {KEY_PASSWORD}",
    )


USER: Final = "CLEANERD_SCHEMA_REGISTRY_USER"
PASSWORD: Final = "CLEANERD_SCHEMA_REGISTRY_PASSWORD"  # noqa: S105 - the name of a variable
"""A variable of driver and executors: HTTP basic authentication."""

TRIES: Final = 6
ANSWER_SECONDS: Final = "CLEANERD_SCHEMA_REGISTRY_ANSWER_SECONDS"
_ANSWER_SECONDS: Final = 10.0
"""Default limit for a complete answer."""

_MOST_REFERENCES: Final = 200
_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA = 40401, 40402, 40403
_UNKNOWN: Final = (_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA)


class _TryAgain(Exception):  # noqa: N818 - none that leaves this module
    """A temporary failure; ``after``: the pause in seconds that the registry requests."""

    def __init__(self, why: str, after: float = 0.0) -> None:
        super().__init__(why)
        self.after = after


@lru_cache(maxsize=16)
def registry_at(url: str) -> Registry:
    """One for all tasks of a process, so that cached answers are shared."""
    return Registry(url)


class Registry(Schemas):
    """The registry at ``url``. Its answers are cached by id: a schema's id never changes its meaning.

    ``get`` gives status, body and ``Retry-After`` of a URL, within the seconds of its second argument; ``sleep`` waits.
    """

    def __init__(
        self,
        url: str,
        get: Callable[[str, float], tuple[int, bytes, str]] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = urlsplit(url)
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ConfigError(
                "contains credentials or settings",
                where=shown_url(url),
                hint=f"leave them out: {USER} and {PASSWORD} in the environment of driver and executors",
            )
        if not parts.hostname:
            raise ConfigError("names no host", where=url, hint="http://HOST:8081")
        self.where = self._url = url.rstrip("/")
        self._known: dict[int, Schema] = {}
        self._get = get or _get
        self._sleep = sleep

    def __reduce__(self) -> tuple[Callable[[str], Registry], tuple[str]]:
        """A task queries it by its URL."""
        return registry_at, (self._url,)

    def by_id(self, number: int) -> Schema | None:
        if number not in self._known:
            found = self._fetch(f"/schemas/ids/{number}")
            if found is None:
                return None
            self._known[number] = self._schema(found, f"schema {number}")
        return self._known[number]

    def named(self, name: str) -> NamedSchema:
        subject, colon, version = name.rpartition(":")
        if not colon:
            subject, version = name, "latest"
        found = self._version(subject, version)
        if found is None:
            raise ConfigError(
                f"no schema {name}", where=self.where, hint="name the subject, or SUBJECT:VERSION, that there is"
            )
        return NamedSchema(self._schema(found, name), f"{subject} version {found.get('version', version)}")

    def _version(self, subject: str, version: str) -> dict[str, Any] | None:
        return self._fetch(f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}")

    def _schema(self, found: dict[str, Any], label: str) -> Schema:
        kind = str(found.get("schemaType") or AVRO).lower()
        if kind not in KINDS:
            raise ConfigError(f"{label} is {kind[:40]}", where=self.where, hint=f"one of {', '.join(KINDS)} is read")
        references: dict[str, str] = {}
        self._collect(found, references, label, 0)
        return Schema(kind, self._text(found, label), tuple(references.items()))

    def _collect(self, found: dict[str, Any], references: dict[str, str], label: str, depth: int) -> None:
        """Collect its references, each after its own references."""
        for each in found.get("references") or ():
            try:
                name, subject, version = str(each["name"]), str(each["subject"]), str(each["version"])
            except (TypeError, KeyError):
                raise self._strange(f"a reference of {label} has not exactly a name, a subject and a version") from None
            if name in references:
                continue
            if depth > _MOST_REFERENCES or len(references) > _MOST_REFERENCES:
                raise self._strange(f"{label} has more than {_MOST_REFERENCES} references, or a cycle of them")
            needed = self._version(subject, version)
            if needed is None:
                raise ConfigError(
                    f"{label} needs {name}, but {subject} version {version} does not exist", where=self.where
                )
            self._collect(needed, references, label, depth + 1)
            references[name] = self._text(needed, name)

    def _text(self, found: dict[str, Any], label: str) -> str:
        text = found.get("schema")
        if not isinstance(text, str):
            raise self._strange(f"no text for {label}")
        return text

    def _strange(self, why: str) -> CleanerdError:
        return ConfigError(f"does not answer as a schema registry does: {why}", where=self.where)

    def _fetch(self, path: str) -> dict[str, Any] | None:
        """The document at ``path``; None if the registry reports that it does not exist."""
        policy = RetryPolicy.from_environment(tries=TRIES)
        answer_seconds = number_in(ANSWER_SECONDS, _ANSWER_SECONDS)
        for number in range(policy.tries):
            try:
                return self._judge(*self._get(self._url + path, answer_seconds), path)
            except _TryAgain as error:
                if number == policy.tries - 1:
                    reason = f"{error}; tried {policy.tries} times"
                    raise MachineError(reason, where=self._url + path, hint="is the schema registry well?") from None
                self._sleep(policy.pause_seconds(number, error.after))
        raise AssertionError

    def _judge(self, status: int, body: bytes, after: str, path: str) -> dict[str, Any] | None:
        if status in (408, 429) or status >= 500:
            raise _TryAgain(f"answers {status}", float(after) if after.isdecimal() else 0.0)
        if status in (401, 403):
            raise ConfigError(
                f"answers {status}: wrong credentials, or none",
                where=self._url,
                hint=f"{USER} and {PASSWORD} in the environment of driver and executors",
            )
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if status == 200 and isinstance(found, dict):
            return found
        if status == 200:
            raise _TryAgain(f"its answer is not a JSON object: {body[:40]!r}")
        if status == 404 and isinstance(found, dict) and found.get("error_code") in _UNKNOWN:
            return None
        message = str(found.get("message", "")) if isinstance(found, dict) else ""
        raise self._strange(f"{status} for {path} {message[:200]}".rstrip())


def _get(url: str, answer_seconds: float) -> tuple[int, bytes, str]:
    """Status, body and ``Retry-After``. In a separate thread, because a notebook already has an event loop."""
    tls = tls_from_environment()
    answer: list[tuple[int, bytes, str]] = []
    failed: list[BaseException] = []

    def request() -> None:
        try:
            answer.append(asyncio.run(_fetch(url, tls, answer_seconds)))
        except (OSError, TimeoutError, _TryAgain, ConfigError, ValueError) as error:
            failed.append(error)

    thread = threading.Thread(target=request, name="cleanerd-registry", daemon=True)
    thread.start()
    thread.join(3 * answer_seconds)  # in case a name server hangs
    if answer:
        return answer[0]
    why = failed[0] if failed else None
    if isinstance(why, _TryAgain | ConfigError):
        raise why
    if why is None or isinstance(why, TimeoutError):
        raise _TryAgain(f"no answer within {answer_seconds:.0f} seconds")
    raise _TryAgain(f"no answer: {str(why)[:200] or type(why).__name__}")


async def _fetch(url: str, tls: ssl.SSLContext | None, answer_seconds: float) -> tuple[int, bytes, str]:
    import aiohttp  # noqa: PLC0415 - a worker that decodes nothing has no use for it

    headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
    if os.environ.get(USER):
        credentials = f"{os.environ[USER]}:{os.environ.get(PASSWORD, '')}".encode()
        headers["Authorization"] = "Basic " + base64.b64encode(credentials).decode()
    limit = aiohttp.ClientTimeout(total=answer_seconds)
    try:
        async with (
            aiohttp.ClientSession(timeout=limit, trust_env=True) as session,
            session.get(url, headers=headers, ssl=tls or True) as got,
        ):
            body = bytearray()
            async for piece in got.content.iter_chunked(65536):
                body += piece
                if len(body) > MOST_BYTES:
                    raise _TryAgain(f"an answer of more than {MOST_BYTES} bytes")
            return got.status, bytes(body), got.headers.get("Retry-After", "")
    except TimeoutError:
        raise
    except aiohttp.ClientError as error:
        refusal: Exception | None = error if is_final(error) else None
        if refusal is None and tls is not None and isinstance(error, OSError):
            # With TLS 1.3 the registry judges the certificate after the client has begun to write.
            # Then the write may fail before its alert is read.
            refusal = await asyncio.to_thread(tls_alert, url, tls, answer_seconds)
        if refusal is not None:
            raise ConfigError(
                f"the registry or this client does not trust the other: {str(refusal)[:200]}",
                where=url,
                hint=f"{AUTHORITY} trusts a registry, {CERTIFICATE} is the client's: of driver and executors",
            ) from error
        raise _TryAgain(f"no answer: {str(error)[:200] or type(error).__name__}") from error


def tls_alert(url: str, tls: ssl.SSLContext, answer_seconds: float) -> ssl.SSLError | None:
    """The registry's alert on a connection that sends nothing; None if there is none."""
    address = urlsplit(url)
    try:
        with (
            socket.create_connection((address.hostname, address.port or 443), answer_seconds) as plain,
            tls.wrap_socket(plain, server_hostname=address.hostname) as connection,
        ):
            connection.recv(1)
    except ssl.SSLError as error:
        return error if is_final(error) else None
    except OSError:
        return None
    return None
