"""Connection settings from Kafka's client properties file (``--command-config``), for both client libraries.

This module maps Kafka's client settings to options of kafka-python and of librdkafka (confluent-kafka). A setting that
cannot be passed on is an error with file and line, never left out silently. No ``repr``, error or warning contains a
password.
"""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cleanerd.admin.key_stores import KeyPair, certificates_in, key_pair, pem_pair, trusted_certificates
from cleanerd.errors import ConfigError, CorruptionError
from cleanerd.format.jaas import read_jaas
from cleanerd.format.properties import located_properties

MAX_FILE_BYTES: Final = 1024 * 1024

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_STORE_TYPES: Final = frozenset({"JKS", "PKCS12", "PEM"})
_TLS_1_2_UP: Final = frozenset({"TLSv1.2", "TLSv1.3"})
_LOOKUPS: Final = ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")

_NUMBERS: Final[Mapping[str, tuple[str, str]]] = {
    "request.timeout.ms": ("request_timeout_ms", "socket.timeout.ms"),
    "reconnect.backoff.ms": ("reconnect_backoff_ms", "reconnect.backoff.ms"),
    "reconnect.backoff.max.ms": ("reconnect_backoff_max_ms", "reconnect.backoff.max.ms"),
    "retry.backoff.ms": ("retry_backoff_ms", "retry.backoff.ms"),
    "connections.max.idle.ms": ("connections_max_idle_ms", "connections.max.idle.ms"),
    "metadata.max.age.ms": ("metadata_max_age_ms", "metadata.max.age.ms"),
}
"""Kafka's name -> kafka-python's, librdkafka's."""

_KNOWN: Final = frozenset({
    "bootstrap.servers", "client.id", "client.dns.lookup", "security.protocol", "sasl.mechanism", "sasl.jaas.config",
    "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type", "ssl.truststore.certificates",
    "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type", "ssl.keystore.key",
    "ssl.keystore.certificate.chain", "ssl.key.password", "ssl.endpoint.identification.algorithm", "ssl.protocol",
    "ssl.enabled.protocols", *_NUMBERS,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Login:
    """A SASL mechanism with its credentials."""

    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The checked content of a client properties file. Without a file: no TLS, no login.

    ``servers``: its ``bootstrap.servers``, used where the settings name none. ``trusted``: certificates as PEM, None
    for the system's. ``tuning``: Kafka's name -> value. ``warnings``: advice to the operator.
    """

    path: Path | None = None
    servers: str | None = None
    client_id: str = "cleanerd"
    protocol: str = "PLAINTEXT"
    login: Login | None = None
    trusted: str | None = field(default=None, repr=False)
    own: KeyPair | None = field(default=None, repr=False)
    checks_host: bool = True
    lookup: str | None = None
    tuning: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol in {"SSL", "SASL_SSL"}

    def kafka_python(self) -> dict[str, Any]:
        """Options of ``KafkaAdminClient``, ``KafkaConsumer`` and ``KafkaProducer``, except ``bootstrap_servers``.

        Raises:
            ConfigError: Python's TLS rejects the certificates or the key.
        """
        options: dict[str, Any] = {"client_id": self.client_id, "security_protocol": self.protocol}
        options |= {_NUMBERS[key][0]: value for key, value in self.tuning.items()}
        if self.lookup is not None:
            options["client_dns_lookup"] = self.lookup
        if self.uses_tls:
            options |= {"ssl_context": self._tls(), "ssl_check_hostname": self.checks_host}
        if self.login is not None:
            options |= {
                "sasl_mechanism": self.login.mechanism,
                "sasl_plain_username": self.login.username,
                "sasl_plain_password": self.login.password,
            }
        return options

    def confluent(self) -> dict[str, Any]:
        """Options of confluent-kafka's clients, except ``bootstrap.servers``."""
        options: dict[str, Any] = {"client.id": self.client_id, "security.protocol": self.protocol}
        options |= {_NUMBERS[key][1]: value for key, value in self.tuning.items()}
        if self.lookup is not None:
            options["client.dns.lookup"] = self.lookup
        if self.uses_tls:
            options["ssl.endpoint.identification.algorithm"] = "https" if self.checks_host else "none"
            if self.trusted is not None:
                options["ssl.ca.pem"] = self.trusted
            if self.own is not None:
                options |= {"ssl.certificate.pem": self.own.chain, "ssl.key.pem": self.own.key}
                if self.own.key_password is not None:
                    options["ssl.key.password"] = self.own.key_password
        if self.login is not None:
            options |= {
                "sasl.mechanism": self.login.mechanism,
                "sasl.username": self.login.username,
                "sasl.password": self.login.password,
            }
        return options

    def _tls(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.checks_host
        try:
            if self.trusted is None:
                context.load_default_certs()
            else:
                context.load_verify_locations(cadata=self.trusted)
            if self.own is not None:
                _load_key(context, self.own)
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or "not understood"
            raise ConfigError(
                f"certificates or key cannot be used ({str(reason).lower().replace('_', ' ')})",
                where=str(self.path),
                hint="is ssl.key.password right, and do key and certificate belong together?",
            ) from None
        return context


def _load_key(context: ssl.SSLContext, own: KeyPair) -> None:
    """Load a key from memory: Python reads a key only from a file, so use one without a name."""
    descriptor = os.memfd_create("cleanerd-key", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write((own.key + own.chain).encode("latin-1"))
        file.flush()
        # An empty password prevents OpenSSL from asking on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=own.key_password or "")


def read_client_config(path: Path | None) -> ClientConfig:
    """The file's settings; None if it is not a file.

    Raises:
        ConfigError: it cannot be read, or a setting is invalid or cannot be passed on; with file, line, name and fix.
    """
    if path is None:
        return ClientConfig()
    file = _PropertiesFile(path)
    unknown = [key for key in file.names if key not in _KNOWN]
    if unknown:
        also = f" (also: {', '.join(unknown[1:])})" if unknown[1:] else ""
        hint = "remove the line, or give cleanerd another file without it"
        raise file.wrong(unknown[0], f"cleanerd cannot pass this setting on to its clients{also}", hint)
    protocol = file.one_of("security.protocol", _PROTOCOLS, "PLAINTEXT")
    tls = protocol in {"SSL", "SASL_SSL"}
    _check_tls_versions(file)
    algorithm = file.text("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in {"https", ""}:
        raise file.wrong("ssl.endpoint.identification.algorithm", "it must be https, or empty for no check of names")
    return ClientConfig(
        path=path,
        servers=file.text("bootstrap.servers", "").strip() or None,
        client_id=file.text("client.id", "").strip() or "cleanerd",
        protocol=protocol,
        login=_login(file) if protocol.startswith("SASL_") else None,
        trusted=_trusted(file) if tls else None,
        own=_key_pair(file) if tls else None,
        checks_host=algorithm == "https",
        lookup=file.one_of("client.dns.lookup", _LOOKUPS, "", upper=False) or None,
        tuning={key: file.number(key) for key in _NUMBERS if key in file.names},
        warnings=tuple(_warnings(file, tls=tls)),
    )


class _PropertiesFile:
    """Values with their lines. An empty value of a password or path counts as unset, as in Kafka's clients."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self.mode = os.fstat(file.fileno()).st_mode
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", where=str(path), hint=_HINT) from error
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError("too large for a client properties file", where=str(path), hint=_HINT)
        try:
            self._values = located_properties(data, str(path))
        except CorruptionError as error:
            raise ConfigError(error.message, where=str(path)) from None

    @property
    def names(self) -> list[str]:
        return list(self._values)

    def text(self, key: str, default: str) -> str:
        return self._values[key][0] if key in self._values else default

    def secret(self, key: str) -> str | None:
        return self.text(key, "") or None

    def one_of(self, key: str, known: tuple[str, ...], default: str, *, upper: bool = True) -> str:
        text = self.text(key, default).strip()
        value = text.upper() if upper else text
        if value not in known and value != default:
            raise self.wrong(key, f"it must be one of {', '.join(known)}")
        return value

    def number(self, key: str) -> int:
        text = self.text(key, "").strip()
        if not (text.isdecimal() and text.isascii() and len(text) < 20 and int(text) < 2**31):
            raise self.wrong(key, "it must be a whole number")
        return int(text)

    def place(self, key: str) -> str:
        line = self._values[key][1] if key in self._values else 0
        return f"{self.path}:{line}" if line else str(self.path)

    def wrong(self, key: str, what: str, hint: str | None = None) -> ConfigError:
        return ConfigError(f"{key}: {what}", where=self.place(key), hint=hint)

    def store_path(self, kind: str) -> Path | None:
        """The location of a trust store or key store, whose type has to be supported."""
        text = self.text(f"ssl.{kind}.location", "").strip()
        known = self.text(f"ssl.{kind}.type", "JKS").strip().upper()
        if known not in _STORE_TYPES:
            hint = "convert it to PEM, and set the type to PEM"
            raise self.wrong(f"ssl.{kind}.type", "cleanerd reads JKS, PKCS12 and PEM", hint)
        if "\0" in text:
            raise self.wrong(f"ssl.{kind}.location", "it must be a path")
        return Path(text) if text else None


_HINT: Final = "a client properties file as Kafka's tools take it: --command-config, cleanerd.command.config"


def _check_tls_versions(file: _PropertiesFile) -> None:
    """Accept both libraries' default: TLS 1.2 or newer. librdkafka supports nothing else."""
    if file.text("ssl.protocol", "TLS").strip() not in {"TLS", *_TLS_1_2_UP}:
        raise file.wrong("ssl.protocol", "cleanerd speaks TLS 1.2 and newer only", "set TLS, or remove the line")
    enabled = {word.strip() for word in file.text("ssl.enabled.protocols", ",".join(_TLS_1_2_UP)).split(",")}
    if enabled != _TLS_1_2_UP:
        hint = "set TLSv1.2,TLSv1.3, or remove the line; the broker's own setting can narrow it down"
        raise file.wrong("ssl.enabled.protocols", "cleanerd cannot narrow down TLS versions", hint)


def _login(file: _PropertiesFile) -> Login:
    mechanism = file.text("sasl.mechanism", "GSSAPI").strip()
    if mechanism not in _LOGIN_MODULES:
        given = mechanism if "sasl.mechanism" in file.names else f"not set, which means {mechanism}"
        raise file.wrong(
            "sasl.mechanism", f"{given[:40]}: cleanerd knows {', '.join(_LOGIN_MODULES)}", "use a login of one of these"
        )
    key = "sasl.jaas.config"
    if not file.text(key, "").strip():
        example = f'{_LOGIN_MODULES[mechanism]} required username="..." password="...";'
        raise file.wrong(key, "it is not set; a JAAS file of the JVM is not read", f"set it to {example}")
    try:
        entry = read_jaas(file.text(key, ""))
    except ValueError as error:
        raise file.wrong(key, str(error)) from None
    if entry.module != _LOGIN_MODULES[mechanism]:
        raise file.wrong(key, f"{mechanism} needs the login module {_LOGIN_MODULES[mechanism]}")
    unknown = sorted(set(entry.options) - {"username", "password"})
    if unknown:
        hint = "log in with username and password"
        raise file.wrong(key, f"the option {unknown[0]} cannot be passed on to cleanerd's clients", hint)
    if not entry.options.get("username") or not entry.options.get("password"):
        raise file.wrong(key, "username or password is missing")
    return Login(mechanism, entry.options["username"], entry.options["password"])


def _trusted(file: _PropertiesFile) -> str | None:
    path, pem = file.store_path("truststore"), file.secret("ssl.truststore.certificates")
    if path is not None and pem is not None:
        raise file.wrong("ssl.truststore.certificates", "ssl.truststore.location is set too", "keep one of them")
    if pem is not None:
        return certificates_in(pem, file.place("ssl.truststore.certificates"))
    return None if path is None else trusted_certificates(path, file.secret("ssl.truststore.password"))


def _key_pair(file: _PropertiesFile) -> KeyPair | None:
    path, pem = file.store_path("keystore"), file.secret("ssl.keystore.key")
    if path is not None and pem is not None:
        raise file.wrong("ssl.keystore.key", "ssl.keystore.location is set too", "keep one of them")
    if pem is not None:
        chain = file.text("ssl.keystore.certificate.chain", "")
        return pem_pair(chain, pem, file.secret("ssl.key.password"), file.place("ssl.keystore.key"))
    if path is None:
        return None
    return key_pair(path, file.secret("ssl.keystore.password"), file.secret("ssl.key.password"))


def _warnings(file: _PropertiesFile, *, tls: bool) -> Iterator[str]:
    """Warn of files that contain a secret and that every user of the host may read."""
    if _others_read(file.mode) and any("password" in key or key in _SECRETS for key in file.names):
        yield f"{file.path}: every user of this host may read the passwords in it (chmod o-rwx)"
    path = file.store_path("keystore") if tls else None
    if path is not None and _others_read(path.stat().st_mode):
        yield f"{path}: every user of this host may read this key store (chmod o-rwx)"


_SECRETS: Final = frozenset({"sasl.jaas.config", "ssl.keystore.key"})


def _others_read(mode: int) -> bool:
    # A pipe, for example from a shell's <(...), has a meaningless mode.
    return stat.S_ISREG(mode) and bool(mode & stat.S_IROTH)
