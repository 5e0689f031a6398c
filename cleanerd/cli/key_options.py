"""The search options of ``audit`` and ``spark audit``, and the resulting terms."""

from __future__ import annotations

import base64
import binascii
import codecs
from typing import TYPE_CHECKING, Any

import click

from cleanerd.cli.selecting import ExistingPath

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cleanerd.verify.audit import Term, TermKind


def search_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--key --keys-file --key-prefix --value-contains --hex --base64 --expect-absent``."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def find_terms(
    *,
    keys: tuple[str, ...],
    keys_file: Path | None = None,
    key_prefixes: tuple[str, ...] = (),
    value_parts: tuple[str, ...] = (),
    as_hex: bool,
    as_base64: bool,
) -> tuple[Term, ...]:
    """The terms of a command line without duplicates; may be empty.

    Raises:
        click.UsageError: one does not have the form of ``--hex`` or ``--base64``, or both are given; an empty prefix or
            part, which every record has; a file in another encoding, whose keys would be nowhere.
    """
    from cleanerd.verify.audit import Term  # noqa: PLC0415 - NumPy
    from cleanerd.verify.listing import bytes_of  # noqa: PLC0415

    if as_hex and as_base64:
        raise click.UsageError("give --hex or --base64, not both")
    data = b"" if keys_file is None else bytes_of(keys_file) or b""
    if data.startswith(_BOMS):
        raise click.UsageError(f"{keys_file} begins with a byte order mark: save it as UTF-8 without one, or use --hex")
    lines = data.splitlines()
    given: list[tuple[TermKind, bytes]] = [
        *(("key", text.encode()) for text in keys),
        *(("key", line) for line in lines),
        *(("key_prefix", text.encode()) for text in key_prefixes),
        *(("value_contains", text.encode()) for text in value_parts),
    ]
    terms = tuple(dict.fromkeys(Term(kind, _key(text, as_hex=as_hex, as_base64=as_base64)) for kind, text in given))
    if any(term.kind != "key" and not term.data for term in terms):
        raise click.UsageError("an empty --key-prefix or --value-contains matches every record: give some bytes")
    return terms


_BOMS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Editors write them; no reader sees them, and no record has a key that begins with one."""


def _key(text: bytes, *, as_hex: bool, as_base64: bool) -> bytes:
    decode: Callable[[bytes], bytes] | None = binascii.unhexlify if as_hex else _base64 if as_base64 else None
    if decode is None:
        return text
    try:
        return decode(text.strip())
    except ValueError as error:
        shown = text[:60].decode("utf-8", "backslashreplace")
        raise click.UsageError(f"{shown!r} is not a {'hexadecimal' if as_hex else 'base64'} key: {error}") from None


def _base64(text: bytes) -> bytes:
    return base64.b64decode(text, validate=True)


_OPTIONS = (
    click.option("--key", "keys", multiple=True, metavar="K", help="Find records with this key. Repeatable."),
    click.option(
        "--keys-file",
        type=ExistingPath(dir_okay=False),
        metavar="FILE",
        help="A file with one key per line. --hex and --base64 apply to it.",
    ),
    click.option(
        "--key-prefix",
        "key_prefixes",
        multiple=True,
        metavar="K",
        help="Find records whose key begins with these bytes. Repeatable.",
    ),
    click.option(
        "--value-contains",
        "value_parts",
        multiple=True,
        metavar="V",
        help="Find records with these bytes in the value, or in a header's value. Repeatable.",
    ),
    click.option("--hex", "as_hex", is_flag=True, help="The bytes to find are written in hexadecimal."),
    click.option("--base64", "as_base64", is_flag=True, help="The bytes to find are written in base64."),
    click.option("--expect-absent", is_flag=True, help="Exit code 1 if a record is found."),
)
