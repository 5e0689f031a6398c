"""cleanerd.cli.lazy_command: commands whose module is imported when they are called."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

import pytest

from cleanerd.cli.lazy_command import lazy_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "cleanerd_test_of_later"
MODULE = """
import gc
collected_meanwhile = gc.isenabled()

def work(number):
    return number + 1
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / f"{NAME}.py"
    sys.modules.pop(NAME, None)
    gc.unfreeze()


def declared() -> None:
    """The command's description."""


@pytest.mark.long
def test_a_module_is_imported_while_collection_is_off(module: Path) -> None:
    module.write_text(MODULE)
    command = lazy_command(f"{NAME}:work")(declared)
    assert command.__doc__ == "The command's description."
    assert NAME not in sys.modules
    frozen = gc.get_freeze_count()
    assert command(1) == 2
    assert not sys.modules[NAME].collected_meanwhile
    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen, "existing names stay"
    frozen = gc.get_freeze_count()
    kept: list[list[int]] = [[] for _ in range(10_000)]
    assert command(2) == 3
    assert gc.get_freeze_count() <= frozen, "later names do not"
    del kept


def test_a_module_that_cannot_be_imported(module: Path) -> None:
    module.write_text("raise OSError('the disk')")
    with pytest.raises(OSError, match="the disk"):
        lazy_command(f"{NAME}:work")(declared)()
    assert gc.isenabled()


def test_a_disabled_garbage_collector_stays_disabled(module: Path) -> None:
    module.write_text(MODULE)
    gc.disable()
    try:
        assert lazy_command(f"{NAME}:work")(declared)(1) == 2
        assert not gc.isenabled()
    finally:
        gc.enable()
