"""The keys that ``audit`` and ``spark audit`` are asked for: their options, and what is made of them."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

import click

from cleanerd.cli.selecting import ExistingPath

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any


def key_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--key --keys-file --hex --base64 --expect-absent``."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def find_keys_asked(keys: tuple[str, ...], keys_file: Path | None, *, as_hex: bool, as_base64: bool) -> list[bytes]:
    """The keys that a command line names, none or many.

    Raises:
        click.UsageError: one is not of the form that ``--hex`` or ``--base64`` says, or both are given.
    """
    if as_hex and as_base64:
        raise click.UsageError("give --hex or --base64, not both")
    wanted = [_key(text.encode(), as_hex=as_hex, as_base64=as_base64) for text in keys]
    if keys_file is not None:
        from cleanerd.verify.listing import bytes_of  # noqa: PLC0415 - NumPy

        lines = (bytes_of(keys_file) or b"").splitlines()
        wanted += [_key(line, as_hex=as_hex, as_base64=as_base64) for line in lines]
    return wanted


def _key(text: bytes, *, as_hex: bool, as_base64: bool) -> bytes:
    decode: Callable[[bytes], bytes] | None = binascii.unhexlify if as_hex else _base64 if as_base64 else None
    if decode is None:
        return text
    try:
        return decode(text.strip())
    except ValueError as error:
        shown = text[:60].decode("utf-8", "backslashreplace")
        raise click.UsageError(f"{shown!r} is no {'hexadecimal' if as_hex else 'base64'} key: {error}") from None


def _base64(text: bytes) -> bytes:
    return base64.b64decode(text, validate=True)


_OPTIONS = (
    click.option("--key", "keys", multiple=True, metavar="K", help="Look for this key in every file. Repeatable."),
    click.option(
        "--keys-file",
        type=ExistingPath(dir_okay=False),
        metavar="FILE",
        help="A key a line, in the form that --hex and --base64 say.",
    ),
    click.option("--hex", "as_hex", is_flag=True, help="Keys are given as hexadecimal digits."),
    click.option("--base64", "as_base64", is_flag=True, help="Keys are given in base64."),
    click.option("--expect-absent", is_flag=True, help="Exit code 1 when a key is found: for proofs of erasure."),
)
