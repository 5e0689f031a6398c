"""The table of planted mistakes matches the sources: a stale mutant would test nothing."""

from __future__ import annotations

import re

import pytest

from tests.mutants.mutant import ROOT, Mutant, StaleMutantError
from tests.mutants.table import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_fits_the_sources(mutant: Mutant) -> None:
    """The old text occurs exactly once, the new one differs, and the named tests exist."""
    text = (ROOT / mutant.file).read_text()
    assert mutant.applied(text) != text
    assert mutant.tests
    for test in mutant.tests:
        path, _, name = test.partition("::")
        assert mutant.is_kernel == path.startswith("kernel/tests/")
        definition = rf"^\s*fn {name}\(" if mutant.is_kernel else rf"^def {name}\("
        assert re.search(definition, (ROOT / path).read_text(), re.MULTILINE), f"{test} is no test"


def test_names_are_unique() -> None:
    """Of mutants, and of cargo's tests: its output gives no file."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    kernel = {test for mutant in MUTANTS if mutant.is_kernel for test in mutant.tests}
    assert len({test.rpartition("::")[2] for test in kernel}) == len(kernel)


@pytest.mark.parametrize("text", ["", "right right"])
def test_a_stale_mutant_is_reported(text: str) -> None:
    with pytest.raises(StaleMutantError, match="not once"):
        Mutant("a", "C-45", "file", "right", "wrong", ()).applied(text)
