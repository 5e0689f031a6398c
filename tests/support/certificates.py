"""Keys and certificates for tests of TLS by openssl and keytool: an authority, one below it, a server, a client."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PASSWORD = "store s3cret"  # noqa: S105 - of stores that the tests make
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in ``place``.

    ``ca.pem`` is the authority; ``NAME.pem`` is a key and its chain, ``NAME.p12`` and ``NAME.jks`` too. NAME is
    ``server`` (127.0.0.1 and localhost), ``client``, ``stranger`` (of another authority).
    """

    place: Path

    def path(self, name: str) -> Path:
        return self.place / name

    def text(self, name: str) -> str:
        return self.path(name).read_text()


def make_certificates(place: Path) -> Certificates:
    place.mkdir(parents=True, exist_ok=True)
    _self_signed(place, "ca")
    _signed(place, "below", "ca", "basicConstraints=critical,CA:TRUE")
    _signed(place, "server", "below", "subjectAltName=IP:127.0.0.1,DNS:localhost")
    _signed(place, "client", "below", "extendedKeyUsage=clientAuth")
    _self_signed(place, "stranger")
    for name in ("server", "client", "stranger"):
        chain = [name, "below"] if name != "stranger" else [name]
        pem = "".join((place / f"{each}.crt").read_text() for each in chain)
        (place / f"{name}.chain").write_text(pem)
        (place / f"{name}.pem").write_text((place / f"{name}.key").read_text() + pem)
        _openssl(
            place, "pkcs12", "-export", "-out", f"{name}.p12", "-inkey", f"{name}.key", "-in", f"{name}.chain",
            "-name", name, "-passout", f"pass:{PASSWORD}",
        )  # fmt: skip
    (place / "ca.pem").write_text((place / "ca.crt").read_text())
    _openssl(
        place, "pkcs8", "-topk8", "-in", "client.key", "-out", "client.enc", "-passout", f"pass:{PASSWORD}"
    )  # fmt: skip
    (place / "client-encrypted.pem").write_text(
        (place / "client.enc").read_text() + (place / "client.chain").read_text()
    )
    for kind, name in (("PKCS12", "trust.p12"), ("JKS", "trust.jks")):
        _keytool(place, "-importcert", "-noprompt", "-alias", "ca", "-file", "ca.crt", "-keystore", name,
                 "-storetype", kind, "-storepass", PASSWORD)  # fmt: skip
    _keytool(place, "-importkeystore", "-noprompt", "-srckeystore", "client.p12", "-srcstoretype", "PKCS12",
             "-srcstorepass", PASSWORD, "-destkeystore", "client.jks", "-deststoretype", "JKS", "-deststorepass",
             PASSWORD)  # fmt: skip
    return Certificates(place)


def _self_signed(place: Path, name: str) -> None:
    _openssl(
        place, "req", "-x509", *_NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.crt",
        "-days", "30", "-subj", f"/CN={name}",
    )  # fmt: skip


def _signed(place: Path, name: str, by: str, extension: str) -> None:
    _openssl(
        place, "req", "-new", *_NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr",
        "-subj", f"/CN={name}",
    )  # fmt: skip
    (place / f"{name}.ext").write_text(f"{extension}\n")
    _openssl(
        place, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{by}.crt", "-CAkey", f"{by}.key", "-CAcreateserial",
        "-out", f"{name}.crt", "-days", "30", "-extfile", f"{name}.ext",
    )  # fmt: skip


def _openssl(place: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=place, check=True, capture_output=True)


def _keytool(place: Path, *arguments: str) -> None:
    subprocess.run(["keytool", *arguments], cwd=place, check=True, capture_output=True)
