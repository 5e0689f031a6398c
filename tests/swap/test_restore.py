"""``restore.json``: reading returns exactly what was written, and rejects anything else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cleaner.manifest import FileFact
from cleanerd.errors import CorruptionError, UnsupportedLogError
from cleanerd.swap.files import HERE, PartitionFiles
from cleanerd.swap.group_swap import cleaned_name
from cleanerd.swap.restore import RestoredSegment, RestoreGroup, RestorePlan, resolve_restore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOG = FileFact(5, 7)
PLAN = RestorePlan(
    "20261121t001400-0123abcd",
    (
        RestoreGroup(50, 60, (RestoredSegment(50, {"log": LOG}),)),
        RestoreGroup(0, 20, (RestoredSegment(0, {"log": LOG, "index": LOG}), RestoredSegment(10, {"log": LOG}))),
    ),
)


def test_round_trip() -> None:
    """All kinds in the order of their renames: the log first."""
    assert RestorePlan.from_json(PLAN.to_json(), "x") == PLAN
    assert PLAN.groups[1].segments[0].kinds() == ("log", "index")


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "ascending groups": lambda body: body["groups"].reverse(),
    "another first segment": lambda body: body["groups"][0].update(base=49),
    "descending segments": lambda body: body["groups"][1]["segments"].reverse(),
    "a segment beyond the end": lambda body: body["groups"][1].update(end=10),
    "no segments": lambda body: body["groups"][1].update(segments=[]),
    "no log": lambda body: body["groups"][0]["segments"][0].update(files={}),
    "a strange kind": lambda body: body["groups"][0]["segments"][0]["files"].update({"../x": {}}),
    "a negative base": lambda body: body["groups"][1].update(base=-1),
    "not a plan id": lambda body: body.update(plan="../../etc"),
    "no format": lambda body: body.pop("format"),
    "a strange key": lambda body: body.update(more=1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_damage(change: str) -> None:
    """Its numbers become file names, so they are checked first."""
    body = json.loads(PLAN.to_json())
    CHANGES[change](body)
    with pytest.raises(CorruptionError):
        RestorePlan.from_json(json.dumps(body).encode(), "x")


def test_other_formats() -> None:
    """A newer format is left alone; invalid JSON is ignored."""
    body = {**json.loads(PLAN.to_json()), "format": 2}
    with pytest.raises(UnsupportedLogError):
        RestorePlan.from_json(json.dumps(body).encode(), "x")
    with pytest.raises(CorruptionError):
        RestorePlan.from_json(b"{", "x")


class CountingFiles(PartitionFiles):
    """Counts directory listings: the directory also has the files of thousands of other segments."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.listed = 0

    def names(self, directory: str = HERE) -> frozenset[str]:
        self.listed += directory == HERE
        return super().names(directory)


def test_rolling_back_a_large_group(tmp_path: Path) -> None:
    """Before its commit point: the number of listings does not depend on the number of segments."""
    listed = set()
    for count in (2, 20):
        path = tmp_path / f"t-{count}"
        path.mkdir()
        segments = tuple(RestoredSegment(base, {"log": LOG, "index": LOG}) for base in range(count))
        for segment in segments:
            for kind in segment.kinds():
                (path / cleaned_name(segment.base, kind)).write_bytes(b"")
        with CountingFiles(path) as files:
            plan = RestorePlan(PLAN.plan, (RestoreGroup(0, count, segments),))
            assert resolve_restore(files, plan) == ([], [0])
            listed.add(files.listed)
        assert list(path.iterdir()) == []
    assert len(listed) == 1
