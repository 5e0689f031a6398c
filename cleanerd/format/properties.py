"""Java ``.properties`` text to a dict, by the rules of ``java.util.Properties.load`` (ISO 8859-1)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cleanerd.errors import CorruptionError

_BLANK = " \t\f"
_CONTROL_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}
_HEX4 = re.compile(r"[0-9a-fA-F]{4}", re.ASCII)
_NATURAL_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|$)")


def read_properties(data: bytes, where: str = "properties") -> dict[str, str]:
    r"""Keys and values of a properties file; a key that occurs twice has the later value.

    Comments start with ``#`` or ``!``. A line that ends in an odd number of backslashes continues in the next one. The
    key ends at the first unescaped ``=``, ``:`` or blank. ``\t \n \r \f \uXXXX`` are escapes; any other escaped
    character means itself. Blanks at the end of a value belong to it.

    Raises:
        CorruptionError: ``\u`` without four hexadecimal digits; the message names the line.
    """
    return {key: value for key, (value, _) in located_properties(data, where).items()}


def located_properties(data: bytes, where: str = "properties") -> dict[str, tuple[str, int]]:
    """As :func:`read_properties`; each value has the line number of its beginning."""
    properties = {}
    for number, position, line in _logical_lines(data.decode("iso-8859-1")):
        key, value = _split(line)
        try:
            properties[_unescape(key)] = (_unescape(value), number)
        except ValueError as error:
            raise CorruptionError(f"line {number}: {error}", where=where, position=position) from None
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """``(line number, byte position, line)``: without comments and blank lines, continued lines joined.

    As in the JDK, a comment can follow a line of one backslash, because no text was collected yet.
    """
    collected = ""
    first = (1, 0)
    continues = False
    for number, match in enumerate(_NATURAL_LINE.finditer(text), start=1):
        part = match[1].lstrip(_BLANK)
        if not collected:
            first = (number, match.start())
            if part.startswith(("#", "!")) or (not part and not continues):
                continues = False
                continue
        collected += part
        backslashes = len(part) - len(part.rstrip("\\"))
        continues = backslashes % 2 == 1
        if continues:
            collected = collected[:-1]
            if match.end() < len(text) or match[2] == "\r\n":
                continue
        # A single backslash at the end of the file is an empty key.
        if collected or part:
            yield *first, collected
        collected = ""
        continues = False


def _split(line: str) -> tuple[str, str]:
    """Key and value of a logical line, both still escaped."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    value = line[end:].lstrip(_BLANK)
    if value.startswith(("=", ":")):
        value = value[1:].lstrip(_BLANK)
    return line[:end], value


def _unescape(text: str) -> str:
    """Replace escapes; surrogate pairs become one character, lone surrogates U+FFFD."""
    if "\\" not in text:
        return text
    out = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            char = text[at]
            at += 1
            if char == "u":
                digits = text[at : at + 4]
                if _HEX4.fullmatch(digits) is None:
                    raise ValueError("\\u needs four hexadecimal digits")
                char = chr(int(digits, 16))
                at += 4
            else:
                char = _CONTROL_ESCAPES.get(char, char)
        out.append(char)
    return "".join(out).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
