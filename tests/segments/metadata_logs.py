"""Copies of real brokers' cluster metadata logs, and how to read them."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cleanerd.segments.cluster_metadata import read_cluster_metadata

if TYPE_CHECKING:
    from cleanerd.segments.metadata_image import ClusterMetadata

GOLDEN = Path(__file__).parent.parent / "format" / "golden"
RELEASES = ["kafka-3.9.2", "kafka-4.3.1"]
LOG = "00000000000000000000.log"
ID1, ID2, ID3 = (uuid.UUID(int=number) for number in (1, 2, 3))
release = pytest.mark.parametrize("release", RELEASES)


def golden(release: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / release / "__cluster_metadata-0", tmp_path / release))


def read(directory: Path) -> ClusterMetadata:
    return read_cluster_metadata(directory, only_before_ms=None)
