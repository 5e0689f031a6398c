"""Mutations of known inputs: changed bytes, and in JSON also changed values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

MOST_BYTES: Final = 1 << 16
_ODD: Final = (
    None, True, -1, 0, 2**31, 2**63, -(2**63) - 1, 2**64, 1e308, "", "x" * 300, "\0", "..", "a/b", [], {}, [[]], [None],
    {"": None}, "9" * 400, 0.5, "\ud800", 10**30,
)  # fmt: skip
_BYTES: Final = (0, 1, 0x7F, 0x80, 0xFF, ord("\n"), ord(" "), ord("{"), ord('"'), ord("9"))
_TIMES: Final = (1, 1, 1, 2, 4, 16)
_VALUES: Final = (1, 1, 2, 5)
_RUNS: Final = (1, 4, 8, 40)


class Mutator:
    """Mutates seeds, whose number may grow. A JSON seed is parsed once."""

    def __init__(self, seeds: Sequence[bytes]) -> None:
        self.seeds: list[bytes] = []
        self._documents: list[_Document | None] = []
        for seed in seeds:
            self.add(seed)

    def add(self, seed: bytes) -> None:
        """Add a seed."""
        self.seeds.append(seed)
        self._documents.append(_Document.of(seed))

    def next(self, rng: random.Random) -> bytes:
        """The next input; depends on ``rng`` only."""
        number = int(rng.random() * len(self.seeds))
        document = self._documents[number]
        if document is not None and rng.random() < 0.6:
            return document.odd(rng)
        return _changed(rng, self.seeds[number])


def _changed(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    drawn = rng.random
    for _ in range(_TIMES[int(drawn() * 6)]):
        at = int(drawn() * (len(changed) + 1))
        match int(drawn() * 6):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << int(drawn() * 8)
            case 1 if changed:
                changed[at % len(changed)] = _BYTES[int(drawn() * len(_BYTES))]
            case 2:
                del changed[at:]
            case 3:
                changed[at:at] = rng.randbytes(_RUNS[int(drawn() * 4)])
            case 4:
                changed[at:at] = changed[: int(drawn() * (len(changed) + 1))]
            case _:
                del changed[at : at + 1 + int(drawn() * 8)]
    return bytes(changed[:MOST_BYTES])


class _Document:
    """A JSON value, changed in place and restored, so that it need not be parsed for each input."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._places = list(_places(value))

    @classmethod
    def of(cls, seed: bytes) -> _Document | None:
        if seed[:1] not in (b"{", b"["):
            return None
        try:
            found = cls(json.loads(seed))
        except (ValueError, RecursionError):
            return None
        return found if found._places else None

    def odd(self, rng: random.Random) -> bytes:
        """Its text with some values changed, removed or duplicated."""
        before: list[tuple[Any, Any]] = []
        drawn, places = rng.random, self._places
        for _ in range(_VALUES[int(drawn() * 4)]):
            holder, key = places[int(drawn() * len(places))]
            before.append((holder, holder.copy()))
            try:
                if drawn() < 0.2:
                    del holder[key]
                    continue
                choice = int(drawn() * (len(_ODD) + 4))
                if choice < len(_ODD):
                    holder[key] = _ODD[choice]
                else:  # a value from another place
                    other, name = places[int(drawn() * len(places))]
                    holder[key] = other[name] if choice > len(_ODD) else other
            except (KeyError, IndexError):
                continue  # its container has changed
        try:
            text = json.dumps(self._value)
        except (ValueError, RecursionError):
            text = "[" * 100_000 if drawn() < 0.05 else "{}"  # it contains itself
        for holder, was in reversed(before):
            if isinstance(holder, dict):
                holder.clear()
                holder.update(was)
            else:
                holder[:] = was
        return text.replace("1e+308", "1e999").encode()[: 4 * MOST_BYTES]


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    known = isinstance(document, (dict, list))
    for key, value in document.items() if isinstance(document, dict) else enumerate(document) if known else ():
        yield document, key
        yield from _places(value)
