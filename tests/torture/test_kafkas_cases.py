"""The table of Kafka's own cases in docs/torture-log.md is complete, and every test that it names exists."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Final

import pytest

from tests.kafka.judge import fetch_jars

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (ROOT / "docs/torture-log.md").read_text()
CLASSES: Final = ("LogCleanerTest", "LogCleanerParameterizedIntegrationTest")
NAMED: Final = re.compile(r"`(tests/[\w/]+\.py): (\w+|\"[^\"`]+\")`")
# A name in a class file: its kind, its length, its bytes.
_METHOD: Final = re.compile(rb"\x01\x00(.)(test[A-Z]\w*|cleaner\w*Test)", re.DOTALL)


def cases(profile: str) -> set[str]:
    """Names of the test methods in the classes of that release's test jar."""
    (jar,) = fetch_jars(profile).libs.glob("kafka_2.13-*-test.jar")
    found = set()
    with zipfile.ZipFile(jar) as content:
        for name in CLASSES:
            for length, method in _METHOD.findall(content.read(f"kafka/log/{name}.class")):
                if method[: length[0]] == method and method.decode() not in CLASSES:
                    found.add(method.decode())
    return found


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.parametrize("profile", ["3.9-tests", "4.3-tests"])
def test_every_case_of_kafka_has_a_row(profile: str) -> None:
    """The list comes from the jars, not from the page."""
    found = cases(profile)
    assert {"testCleanSegments", "testRecoveryAfterCrash", "cleanerTest", "cleanerConfigUpdateTest"} <= found
    assert len(found) > 50
    rows = set(re.findall(r"`(?:\w+\.)?(\w+)`", PAGE))
    assert found - rows == set()


@pytest.mark.parametrize(("path", "name"), NAMED.findall(PAGE))
def test_every_test_on_the_page_is_there(path: str, name: str) -> None:
    """A function by its definition, a cell of a table by its text."""
    source = (ROOT / path).read_text()
    # Text after a cell's name, as in "(15)", may be a value.
    wanted = name[1:-1].partition(" (")[0] if name.startswith('"') else f"def {name}("
    assert wanted in source, f"{path}: {name}"
