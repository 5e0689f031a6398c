"""A registry or a directory: the one that an option names, and the one that a task got."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cleanerd.spark.values.folder import SchemaFolder
from cleanerd.spark.values.registry import Registry

if TYPE_CHECKING:
    from cleanerd.spark.values.schemas import Schemas


def schemas_at(place: str) -> Schemas:
    """A registry by its URL, or a directory.

    Raises:
        ConfigError: the URL has credentials in it, or no such directory.
        CleanerdError: the directory cannot be read.
    """
    return _registry(place) if place.startswith(("http://", "https://")) else SchemaFolder.read(place)


def schemas_from(item: Any) -> Schemas:
    """The reverse of :meth:`~cleanerd.spark.values.schemas.Schemas.to_item`."""
    return _registry(item) if isinstance(item, str) else SchemaFolder(item["folder"], item["files"])


@lru_cache(maxsize=16)
def _registry(url: str) -> Registry:
    """One for all tasks of a process: its cached answers need not be requested again."""
    return Registry(url)
