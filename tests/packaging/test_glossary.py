"""The check of docs/glossary.md: a forbidden word is found at its place, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.glossary_check import GLOSSARY, check, forbidden

TOP = Path(__file__).resolve().parents[2]
PAGE = """# Glossary

| term | meaning |
|---|---|
| **plan** | a preview |

## Words that we do not use

| word | use | held out of |
|---|---|---|
| `told` | reported | names, text |
| `is no` | is not a | prose, docs |
| `verb` | command | |
"""
MODULE = '''"""A file that is
no file."""

TOLD_AT = 1  # the verb is told here


def toldest(value, *, was_told=False):
    wasTold = f"was {value} told?"
    # this is
    # no comment
    return wasTold
'''


def _tree(root: Path, page: str = PAGE) -> Path:
    for name, text in {GLOSSARY: page, "cleanerd/told.py": MODULE, "README.md": "It\nis no\nword; told.\n"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_forbidden_words_are_found_by_place(tmp_path: Path) -> None:
    assert check(_tree(tmp_path)) == [
        "README.md:2 is no -> is not a",
        "cleanerd/told.py:1 is no -> is not a",
        "cleanerd/told.py:1 told -> reported",
        "cleanerd/told.py:4 TOLD -> reported",
        "cleanerd/told.py:7 told -> reported",
        "cleanerd/told.py:8 Told -> reported",
        "cleanerd/told.py:8 told -> reported",
        "cleanerd/told.py:9 is no -> is not a",
    ]


def test_names_that_the_code_does_not_have_are_found(tmp_path: Path) -> None:
    """After a rename: a docstring may only name things in the code, in a string, or of others (``wait_for``)."""
    root = _tree(tmp_path)
    module = '"""As :func:`old_name` and ``new_name``, ``OldClass.run``, `NewClass`; not ``orders``, ``wait_for``."""\n'
    (root / "cleanerd/told.py").write_text(f"{module}\n\ndef new_name(): ...\n\n\nclass NewClass: ...\n")
    assert [line for line in check(root) if "the code" in line] == [
        "cleanerd/told.py:1 :func:`old_name` -> a name that the code has",
        "cleanerd/told.py:1 ``OldClass.run`` -> a name that the code has",
    ]


def test_an_unknown_place_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere"):
        check(_tree(tmp_path, PAGE.replace("names, text", "nowhere")))


def test_the_glossary_names_words_to_check() -> None:
    """The page's table is read: with a changed form, no word would be checked."""
    words = forbidden((TOP / GLOSSARY).read_text())
    assert any("told" in word.words for word in words)
    assert all(word.words and word.use for word in words)
