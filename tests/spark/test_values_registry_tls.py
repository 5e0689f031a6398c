"""A registry behind https that requires a certificate: files of the environment, and the errors of wrong ones."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING

import pytest

from cleanerd.config.sources import RETRIES, SCHEMA_REGISTRY, IgnoredVariable, from_environment
from cleanerd.errors import ConfigError
from cleanerd.spark import retries
from cleanerd.spark.values import registry as schema_registry
from cleanerd.spark.values.registry import AUTHORITY, CERTIFICATE, KEY, KEY_PASSWORD
from tests.spark import registry_server
from tests.spark.decoding import decoded, record
from tests.support.certificates import PASSWORD, Certificates, make_certificates
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.spark.registry_server import RegistryServer


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def secured(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    """A registry with a certificate of the authority, which refuses clients without one."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates.path("server.pem"))
    tls.load_verify_locations(certificates.path("ca.pem"))
    tls.verify_mode = ssl.CERT_REQUIRED
    found, stop = registry_server.start(tls)
    found.register("orders-value", json.dumps(record(("id", "long"))))
    for name in (AUTHORITY, CERTIFICATE, KEY, KEY_PASSWORD):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(retries.PAUSE_SECONDS, "0.001")
    yield found
    stop()


@pytest.mark.long
@pytest.mark.parametrize(
    ("certificate", "key", "password"),
    [
        ("client.pem", None, None),
        ("client.chain", "client.key", None),
        ("client.chain", "client.enc", PASSWORD),
        ("client-encrypted.pem", None, PASSWORD),
    ],
)
def test_a_client_key_and_its_chain_are_accepted(
    secured: RegistryServer, certificates: Certificates, monkeypatch: pytest.MonkeyPatch,
    certificate: str, key: str | None, password: str | None,
) -> None:  # fmt: skip
    """Key and chain in one file or two, with a password or without."""
    files = {AUTHORITY: "ca.pem", CERTIFICATE: certificate, KEY: key}
    for name, file in files.items():
        if file is not None:
            monkeypatch.setenv(name, str(certificates.path(file)))
    if password is not None:
        monkeypatch.setenv(KEY_PASSWORD, password)
    decoded(secured.url, [])
    assert secured.requests


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({CERTIFICATE: "client.pem"}, "does not trust the other.*CERTIFICATE_VERIFY_FAILED"),
        ({AUTHORITY: "stranger.pem", CERTIFICATE: "client.pem"}, "does not trust the other.*CERTIFICATE_VERIFY_FAILED"),
        ({AUTHORITY: "ca.pem"}, "does not trust the other.*(?i:certificate.required|handshake)"),
        ({AUTHORITY: "ca.pem", CERTIFICATE: "stranger.pem"}, "does not trust the other.*(?i:unknown.ca|decrypt)"),
        ({AUTHORITY: "ca.pem", KEY: "client.key"}, f"{KEY}=.*a key, and no certificate"),
        ({AUTHORITY: "nothing.pem"}, f"{AUTHORITY}=.*nothing.pem: cannot be used: .*No such file"),
        ({AUTHORITY: "ca.pem", CERTIFICATE: "ca.key"}, f"{CERTIFICATE}=.*ca.key: cannot be used"),
        ({AUTHORITY: "ca.pem", CERTIFICATE: "client.chain", KEY: "client.enc"}, f"cannot be used.*{KEY_PASSWORD}"),
    ],
)
def test_a_client_key_without_its_chain_is_refused(
    secured: RegistryServer,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    why: str,
) -> None:
    """Reported at once, with the variable to check, and no request is sent."""
    for name, file in files.items():
        monkeypatch.setenv(name, str(certificates.path(file)))
    with pytest.raises(ConfigError, match=why):
        decoded(secured.url, [])
    assert not secured.requests


def test_an_alert_is_found_without_a_request(
    secured: RegistryServer, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request's write may fail before the alert is read; a connection that sends nothing reads it."""
    monkeypatch.setenv(AUTHORITY, str(certificates.path("ca.pem")))
    tls = schema_registry.tls_from_environment()
    assert tls is not None
    assert "CERTIFICATE_REQUIRED" in str(schema_registry.tls_alert(secured.url, tls, PATIENCE_SECONDS))
    assert not secured.requests


def test_the_variables_are_known_settings() -> None:
    """None of the variables is reported as unknown, and a misspelled one still is."""
    names = {AUTHORITY, CERTIFICATE, KEY, KEY_PASSWORD, schema_registry.USER, schema_registry.PASSWORD}
    assert names | {schema_registry.ANSWER_SECONDS} == SCHEMA_REGISTRY
    assert {retries.TRIES, retries.PAUSE_SECONDS} == RETRIES
    assert list(from_environment(dict.fromkeys(SCHEMA_REGISTRY | RETRIES, "x"))) == []
    (found,) = from_environment({f"{KEY}S": "x"})
    assert isinstance(found, IgnoredVariable)
