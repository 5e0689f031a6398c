"""How a registry behind https is recognised, and we by it: files that the environment names."""

from __future__ import annotations

import os
import ssl
from typing import Final

from cleanerd.errors import ConfigError

AUTHORITY: Final = "CLEANERD_SCHEMA_REGISTRY_CA"
"""A PEM file: the registry's certificate is trusted by it alone; without it, by what the machine trusts."""
CERTIFICATE: Final = "CLEANERD_SCHEMA_REGISTRY_CERTIFICATE"
"""A PEM file: our certificate and those up to its authority; our key too, where no other file has it."""
KEY: Final = "CLEANERD_SCHEMA_REGISTRY_KEY"
KEY_PASSWORD: Final = "CLEANERD_SCHEMA_REGISTRY_KEY_PASSWORD"  # noqa: S105 - the name of a variable


def tls_from_environment() -> ssl.SSLContext | None:
    """The settings in the environment, or None.

    Raises:
        ConfigError: a file cannot be read or holds something else, or there is a key and no certificate.
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
            # A key without a password does not need it, and no key may ask at a terminal.
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
