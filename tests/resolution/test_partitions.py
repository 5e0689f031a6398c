"""An error that concerns a whole topic is cached for it, and holds no memory of the callers that met it (U-35)."""

from __future__ import annotations

from traceback import walk_tb
from typing import TYPE_CHECKING

import pytest

from cleanerd.config.load import load_settings
from cleanerd.errors import CleanerdError
from cleanerd.resolution.broker_facts import broker_facts
from cleanerd.resolution.partitions import OfflinePartitions
from cleanerd.segments.log_dir import read_log_dir
from tests.cli.clean_log_dirs import good, write_metadata
from tests.support.log_dirs import make_log_dir

if TYPE_CHECKING:
    from pathlib import Path


def frames(error: BaseException) -> int:
    return len(list(walk_tb(error.__traceback__)))


def test_a_wrong_setting_of_many_partitions(tmp_path: Path) -> None:
    """Each of thousands meets the same error: it holds the frames of the last one at most, and a target's none."""
    path = make_log_dir(tmp_path / "logs", {f"orders-{number}": good() for number in range(6)})
    write_metadata(path, topics={"orders": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "seven"}})
    settings = load_settings(assignments=[f"cleanerd.state.dir={tmp_path / 'state'}"])
    log_dir = read_log_dir(path)
    partitions = OfflinePartitions(log_dir, broker_facts(settings, log_dir, []))
    met: list[CleanerdError] = []
    counts = []
    for name in log_dir.partitions:
        with pytest.raises(CleanerdError, match=r"min\.cleanable\.dirty\.ratio") as caught:
            partitions.read(name)
        met.append(caught.value)
        counts.append(frames(caught.value))
    assert len({id(error) for error in met}) == 1, "it is worked out once"
    assert len(set(counts)) == 1
    for target in (*partitions.targets(), *partitions.admitted()):
        assert target.error is not None
        assert frames(target.error) == 0
