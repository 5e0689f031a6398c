"""Trust stores and key stores of Kafka's clients, as openssl and keytool make them: PEM, PKCS12, JKS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.admin.key_stores import key_pair, trusted_certificates
from cleanerd.errors import ConfigError
from cleanerd.format.jks import JksError, read_jks
from tests.support.certificates import PASSWORD, Certificates, make_certificates

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.long
@pytest.mark.parametrize("name", ["ca.pem", "trust.p12", "trust.jks"])
def test_trust_stores(made: Certificates, name: str) -> None:
    assert trusted_certificates(made.path(name), PASSWORD).split() == made.text("ca.crt").split()


@pytest.mark.slow
def test_a_jks_trust_store_needs_no_password(made: Certificates) -> None:
    """As with Java: its seal is not checked then."""
    assert trusted_certificates(made.path("trust.jks"), None).split() == made.text("ca.crt").split()


def test_a_jks_key_store_that_is_also_the_trust_store(made: Certificates) -> None:
    """As Java's TrustManagerFactory uses it (tried with 17): its trusted certificates, and a key's own one."""
    assert trusted_certificates(made.path("client.jks"), PASSWORD).split() == made.text("client.crt").split()
    assert trusted_certificates(made.path("client.jks"), None).split() == made.text("client.crt").split()
    with pytest.raises(ConfigError, match="no password is set"):
        key_pair(made.path("client.jks"), None, None)


@pytest.mark.parametrize("name", ["client.pem", "client.p12", "client.jks"])
def test_key_stores(made: Certificates, name: str) -> None:
    """The client's own certificate comes first, then the one that signed it."""
    found = key_pair(made.path(name), PASSWORD, None)
    assert found.chain.split() == made.text("client.chain").split()
    assert found.key.split() == made.text("client.key").split()
    assert found.key_password is None or name == "client.pem"
    assert "PRIVATE" not in repr(found)


def test_a_key_with_a_password(made: Certificates) -> None:
    found = key_pair(made.path("client-encrypted.pem"), None, PASSWORD)
    assert (found.key_password, "ENCRYPTED" in found.key) == (PASSWORD, True)
    with pytest.raises(ConfigError, match=r"set ssl\.key\.password"):
        key_pair(made.path("client-encrypted.pem"), None, None)


@pytest.mark.parametrize("name", ["client.p12", "client.jks"])
def test_wrong_passwords(made: Certificates, name: str) -> None:
    for read in (
        lambda: key_pair(made.path(name), "hunter2", None),
        lambda: trusted_certificates(made.path(name), "hunter2"),
    ):
        with pytest.raises(ConfigError, match="password is wrong") as raised:
            read()
        assert "hunter2" not in str(raised.value)


def test_a_file_that_is_not_a_key_store_is_refused(made: Certificates, tmp_path: Path) -> None:
    (tmp_path / "words").write_text("no store\n")
    (tmp_path / "der").write_bytes(b"\x30\x03abc")
    (tmp_path / "empty").write_bytes(b"")
    for name, message in (
        ("words", "no certificate"),
        ("der", "cannot read it as PKCS12"),
        ("empty", "empty"),
        ("none", "No such"),
    ):
        with pytest.raises(ConfigError, match=message):
            trusted_certificates(tmp_path / name, "x")
    with pytest.raises(ConfigError, match="no private key"):
        key_pair(made.path("trust.jks"), PASSWORD, None)
    with pytest.raises(ConfigError, match="different passwords"):
        key_pair(made.path("client.p12"), PASSWORD, "another")


def test_damaged_jks_stores_are_errors_and_nothing_else(made: Certificates) -> None:
    """Every truncation and every flipped byte is found, with the seal or without it; nothing reads past the end."""
    data = made.path("client.jks").read_bytes()
    for at in range(0, len(data), 7):
        flipped = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        for damaged in (data[:at], flipped):
            with pytest.raises(JksError):
                read_jks(damaged, PASSWORD, PASSWORD)
        for damaged in (data[:at], flipped):
            try:
                read_jks(damaged, None, PASSWORD)
            except JksError:
                continue
