"""Formats numbers, sizes and times for messages."""

from __future__ import annotations

import pwd
from typing import Final

_NO_LIMIT: Final = 2**63 - 1
"""Kafka's largest number, which means no limit."""

_MANY: Final = {"batch": "batches", "is": "are", "was": "were", "begins": "begin"}


def counted(count: int, noun: str, verb: str = "") -> str:
    """``1 segment``, ``1,234 segments``; with a verb ``1 segment is``, ``2 segments are``."""
    words = [f"{count:,}", *(word if count == 1 else _MANY.get(word, f"{word}s") for word in (noun, verb) if word)]
    return " ".join(words)


def as_utf8(text: str) -> str:
    """The text as valid UTF-8: a path may contain other bytes, which are lone surrogates here."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def human_bytes(count: int) -> str:
    """``1.5 GiB``; below 1 KiB the exact number."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        # 1023.95 would print as 1024.0 of the smaller unit
        if abs(value) < 1023.95:
            break
        value, unit = value / 1024, larger
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def describe_reclaimable(count: int, low: int, high: int, *, exact: bool) -> str:
    """``1.4 GiB``, ``~1.4 GiB ± 0.1``; the error in the same unit."""
    text = human_bytes(count)
    if exact:
        return text
    error = max(count - low, high - count, 0)
    number, unit = text.split()
    of_unit = count / float(number) if float(number) else 1.0
    if not error:
        return f"~{text}"
    if unit == "B" or error > 100 * of_unit:
        return f"~{text} ± {human_bytes(error)}"
    return f"~{text} ± {max(error / of_unit, 0.1):.1f}"


def human_change(before: int, after: int) -> str:
    """``14.8 -> 2.1 MiB (-86 %)``; two units if they differ much, no percentage if there was nothing."""
    first, last = human_bytes(before), human_bytes(after)
    if first.split()[1] == last.split()[1]:
        first = first.split()[0]
    if not before:
        return f"{first} -> {last}"
    share = round(100 * (after - before) / before)
    # Round neither a small amount to nothing nor a large part to all.
    if abs(share) in {0, 100} and after not in {before, 0}:
        return f"{first} -> {last} ({100 * (after - before) / before:+.1f} %)"
    return f"{first} -> {last} ({share:+d} %)" if share else f"{first} -> {last} (0 %)"


def human_ms(duration_ms: float) -> str:
    """``250 ms``, ``1.5 s``, ``2 min 5 s``, ``3 h 20 min``, ``7 d 1 h``: the two largest units."""
    if abs(duration_ms) < 999.5:
        return f"{duration_ms:.0f} ms"
    if abs(duration_ms) < 59_950:
        return f"{duration_ms / 1000:.1f} s"
    sign, seconds = ("-" if duration_ms < 0 else ""), round(abs(duration_ms) / 1000)
    for unit_s, unit, part_s, part in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= unit_s:
            rest = seconds % unit_s // part_s
            return f"{sign}{seconds // unit_s} {unit}" + (f" {rest} {part}" if rest else "")
    return f"{sign}{seconds} s"


def human_setting(key: str, value: object) -> str:
    """A topic's setting with its unit: ``1 d``, ``1.0 GiB``; ``none`` for no limit."""
    if not isinstance(value, int) or isinstance(value, bool) or not key.endswith((".ms", ".bytes")):
        return str(value)
    if value < 0 or value >= _NO_LIMIT:
        return "none"
    return human_ms(value) if key.endswith(".ms") else human_bytes(value)


def human_count(count: int) -> str:
    """A number with commas: ``1,234,567``."""
    return f"{count:,}"


def user_name(uid: int) -> str:
    """A user's name, if this host knows one for the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
