"""Whether an archive would be written into what it is made of, whatever the two places are called."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from cleanerd.errors import ConfigError
from cleanerd.spark.store_clients import account_of
from cleanerd.spark.stores import StorePath

if TYPE_CHECKING:
    from collections.abc import Sequence


def require_no_overlap(target: Path, sources: Sequence[Path]) -> None:
    """The output must be neither in a source nor around one.

    Raises:
        ConfigError: it does.
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
    if scheme.startswith("abfs"):  # the same account has an address of each of Microsoft's two protocols
        return ("abfs:", f"{host.partition('@')[0]}@{account_of(host, str(path))[0]}", *rest)
    return ({"viewfs:": "hdfs:"}.get(scheme, scheme), host, *rest)


def _is_within(one: Path, other: Path) -> bool:
    """Whether ``one`` is ``other`` or is below it, by whatever names."""
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
