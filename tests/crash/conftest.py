"""One JVM and one recorded swap for all crash tests."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash.classify import Classifier
from tests.crash.scenario import TOPIC_DIR, build, record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cleanerd.swap.files import FileOperation
    from tests.crash.scenario import Scenario
    from tests.kafka.judge import Judge

_MEMORY = Path("/dev/shm")  # noqa: S108 - thousands of tiny directories; a disk would only slow them down


@pytest.fixture
def workspace() -> Iterator[Path]:
    """An empty directory in a memory file system, if there is one."""
    directory = Path(tempfile.mkdtemp(prefix="cleanerd-crash-", dir=_MEMORY if _MEMORY.is_dir() else None))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def scenario(judge_43: Judge, tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    """The log before and after."""
    return build(judge_43, tmp_path_factory.mktemp("scenario"))


@pytest.fixture(scope="session")
def operations(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> list[FileOperation]:
    """The recorded swap of all three groups."""
    return record(scenario, tmp_path_factory.mktemp("recorded") / TOPIC_DIR)


@pytest.fixture
def classifier(scenario: Scenario, judge_43: Judge, workspace: Path) -> Classifier:
    """Kafka's loader and the classification."""
    return Classifier(scenario, judge_43, workspace / "loaded")
