"""A store other than S3, configured for the code under test as an operator would."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from cleanerd.spark import stores
from tests.spark import azure, gcs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.spark.other_store import OtherStore

STARTERS = {"gs": gcs.start, "abfs": azure.start}


@contextlib.contextmanager
def serving(kind: str) -> Iterator[OtherStore]:
    """The store for this scheme of URLs, in the environment of this process."""
    store = STARTERS[kind]()
    with pytest.MonkeyPatch.context() as patch:
        for key, value in store.environment.items():
            patch.setenv(key, value)
        try:
            yield store
        finally:
            store.stop()
            stores._system.cache_clear()
