"""Refuses an archive whose output overlaps its sources, even under other names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from cleanerd.errors import ConfigError
from cleanerd.spark.store_clients import account_of
from cleanerd.spark.stores import StorePath


def require_no_overlap(target: Path, sources: Sequence[Path]) -> None:
    """Refuse an output inside or around a source.

    Raises:
        ConfigError: it overlaps.
    """
    for source in sources:
        if _overlap(target, source):
            raise ConfigError(
                f"is inside the source {source}, is it, or is around it",
                where=str(target),
                hint="name a place beside it",
            )


def _overlap(one: Path, other: Path) -> bool:
    if isinstance(one, StorePath) != isinstance(other, StorePath):
        return False
    if isinstance(one, StorePath):
        pairs = zip(_in_one_spelling(one), _in_one_spelling(other), strict=False)
        return all(first == second for first, second in pairs)
    return _is_within(one, other) or _is_within(other, one)


def _in_one_spelling(path: Path) -> tuple[str, ...]:
    scheme, host, *rest = path.parts
    if scheme.startswith("abfs"):  # the same account has an address in each of Microsoft's two protocols
        return ("abfs:", f"{host.partition('@')[0]}@{account_of(host, str(path))[0]}", *rest)
    return ({"viewfs:": "hdfs:"}.get(scheme, scheme), host, *rest)


def _is_within(one: Path, other: Path) -> bool:
    """Whether ``one`` is ``other`` or below it, under any names."""
    real = Path(os.path.realpath(one))
    if real.is_relative_to(os.path.realpath(other)):
        return True
    with contextlib.suppress(OSError):  # a mount may show the same directory twice
        found = os.stat(other)
        for place in (real, *real.parents):
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(place), found):
                    return True
    return False
