"""``sasl.jaas.config`` as Kafka reads it: one login module with its options.

Kafka splits the text into tokens with Java's ``StreamTokenizer``. So values are quoted or made of letters, digits, ``_
$ - .``; a token that begins like a number is invalid; ``//`` and ``/* */`` are comments, and so is the rest of a line
after a single ``/``. Errors never show the text: it contains a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_BLANK_OR_COMMENT: Final = re.compile(r"[\x00-\x20]+|/\*.*?(?:\*/|\Z)|/[^\r\n]*", re.DOTALL)
# Letters, '_', '$' and everything from U+00A0 on begin a token; digits, '.' and '-' only continue one.
_WORD: Final = re.compile(r"[A-Za-z_$\u00a0-\U0010ffff][A-Za-z0-9_$.\-\u00a0-\U0010ffff]*")
_OCTAL: Final = re.compile(r"[0-3][0-7]{0,2}|[4-7][0-7]?")
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module and its options. It is never shown, because the options contain a password."""

    module: str
    options: Mapping[str, str] = field(repr=False)


def read_jaas(text: str) -> JaasEntry:
    """The one entry of ``text``.

    Raises:
        ValueError: none or more than one, or a syntax that Kafka would refuse; the message explains it.
    """
    tokens = list(_tokens(text))
    if not tokens:
        raise ValueError("no login module is named")
    entries = []
    at = 0
    while at < len(tokens):
        entry, at = _entry(tokens, at)
        entries.append(entry)
    if len(entries) != 1:
        raise ValueError(f"{len(entries)} login modules are named, it must be one")
    return entries[0]


@dataclass(frozen=True, slots=True)
class _Token:
    """A token: quoted or plain text, or a single character (``text`` None)."""

    text: str | None
    sign: str = ""


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        if skipped := _BLANK_OR_COMMENT.match(text, at):
            at = skipped.end()
        elif text[at] in "\"'":
            word, at = _quoted(text, at)
            yield _Token(word)
        elif found := _WORD.match(text, at):
            at = found.end()
            yield _Token(found[0])
        else:
            yield _Token(None, text[at])
            at += 1


def _quoted(text: str, start: int) -> tuple[str, int]:
    """The string that begins at ``start``, and its end: the quote, or the end of the line."""
    out = []
    at = start + 1
    while at < len(text) and text[at] not in (text[start], "\r", "\n"):
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            octal = _OCTAL.match(text, at)
            char = chr(int(octal[0], 8)) if octal else _ESCAPES.get(text[at], text[at])
            at += len(octal[0]) if octal else 1
        out.append(char)
    closed = at < len(text) and text[at] == text[start]
    return "".join(out), at + closed


def _entry(tokens: list[_Token], at: int) -> tuple[JaasEntry, int]:
    module = tokens[at].text
    flag = tokens[at + 1].text if at + 1 < len(tokens) else None
    if module is None:
        raise ValueError("no login module is named")
    if flag is None or flag.lower() not in _FLAGS:
        raise ValueError(f"after the login module comes one of {', '.join(sorted(_FLAGS))}")
    at += 2
    options: dict[str, str] = {}
    while at < len(tokens) and tokens[at].sign != ";":
        key, equals, value = ([*tokens[at : at + 3], _Token(None), _Token(None)])[:3]
        if key.text is None or equals.sign != "=" or value.text is None:
            about = f"option {key.text}" if key.text is not None and equals.sign == "=" else "an option"
            raise ValueError(f'{about} is not of the form name="value"; text that is more than a word needs quotes')
        options[key.text] = value.text
        at += 3
    if at >= len(tokens):
        raise ValueError("it does not end with a semicolon")
    return JaasEntry(module, options), at + 1
