"""The archive of a broker's classes is used by the JVM and the jars of its creation, and by no others."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cleanerd_lab.demo.broker import BrokerError
from cleanerd_lab.demo.class_archive import make_archive
from cleanerd_lab.demo.classes import archive_place, with_classes

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def libs(tmp_path: Path) -> Path:
    for name in ("kafka-clients-4.3.1.jar", "scala-library.jar"):
        (tmp_path / name).write_bytes(b"no jar")
        os.utime(tmp_path / name, (1, 1))
    return tmp_path


def test_without_an_archive_the_report_has_none(libs: Path) -> None:
    assert with_classes(libs) == ()


def test_the_archive_is_requested_by_its_path(libs: Path) -> None:
    archive_place(libs).write_bytes(b"classes")
    assert with_classes(libs) == (f"-XX:SharedArchiveFile={archive_place(libs)}",)


def test_other_jars_have_another_archive(libs: Path) -> None:
    """A JVM would ignore it: a later jar, one more, and the same jars elsewhere."""
    archive_place(libs).write_bytes(b"classes")
    os.utime(libs / "scala-library.jar", (2, 2))
    assert with_classes(libs) == ()
    os.utime(libs / "scala-library.jar", (1, 1))
    (libs / "slf4j-simple.jar").write_bytes(b"")
    assert with_classes(libs) == ()
    (libs / "slf4j-simple.jar").rename(libs / "slf4j-simple.txt")
    assert with_classes(libs) != ()


def test_a_broker_that_does_not_start_leaves_none(libs: Path) -> None:
    before = sorted(os.listdir(libs))
    with pytest.raises(BrokerError):
        make_archive(libs)
    assert sorted(os.listdir(libs)) == before
