"""S-16: how long ``.lock`` is held, as the broker cannot start during that time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cleanerd.broker.lock_file import is_held
from cleanerd.cli import clean as clean_module
from tests.cli.clean_log_dirs import COMPACT, NOW, Shell, dirty, good
from tests.support.log_dirs import make_log_dir

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_reading_and_staging_take_no_lock(root: Path, shell: Shell) -> None:
    """S-16: not even for a moment, or the file would exist."""
    path = make_log_dir(root / "logs", {"orders-0": dirty()})
    common = ("--quiet", "--json", "--now-ms", NOW, *COMPACT)
    assert shell("plan", path, "--exact", "--force", *common).json["partitions"][0]["action"] == "clean"
    assert shell("explain", "orders-0", path, *common).code == 0
    assert shell("verify", path, "--json", "--quiet").code == 0
    shell("doctor", path, "--json")
    assert shell("stage", path, "--force", *common).json["partitions"][0]["outcome"] == "staged"
    assert not (path / ".lock").exists()


def test_a_directory_is_held_while_it_is_cleaned_and_no_longer(
    root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-16: not during the turn of another one, nor after a failure, nor while the results are reported."""
    one = make_log_dir(root / "one", {"orders-0": dirty(), "orders-1": dirty()})
    two = make_log_dir(root / "two", {"orders-2": good()})
    log = one / "orders-1" / f"{2:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"\xff")
    held: dict[str, tuple[bool, bool]] = {}
    real_clean, real_report = clean_module.clean_partition, clean_module.print_results

    def clean_partition(locked: Any, name: Any, *more: Any) -> Any:
        held[str(name)] = (is_held(one), is_held(two))
        return real_clean(locked, name, *more)

    def report(*results: Any) -> None:
        held["reported"] = (is_held(one), is_held(two))
        real_report(*results)

    # A held lock can only be seen at that moment.
    monkeypatch.setattr(clean_module, "clean_partition", clean_partition)
    monkeypatch.setattr(clean_module, "print_results", report)
    answer = shell.clean(one, two, "--json")
    assert [row["outcome"] for row in answer.json["partitions"]] == ["cleaned", "quarantined", "cleaned"]
    assert held == {
        "orders-0": (True, False),
        "orders-1": (True, False),
        "orders-2": (False, True),
        "reported": (False, False),
    }
