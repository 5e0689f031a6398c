"""Draw docstrings and comments at random, to be judged by a reader.

Usage: ``python tools/draw_prose.py SEED [NUMBER] [PATH ...]``. NUMBER is 60 and PATH the two packages unless given.
The same seed draws the same ones from the same tree.
"""

from __future__ import annotations

import random
import re
import sys
from typing import TYPE_CHECKING

from glossary_check import PACKAGES, ROOT, pieces

if TYPE_CHECKING:
    from pathlib import Path


def drawn(seed: str, number: int, paths: list[Path]) -> list[str]:
    """``file:line: text`` of ``number`` docstrings and comments of the modules below ``paths``."""
    found = []
    for path in sorted(file for each in paths for file in ([each] if each.is_file() else each.rglob("*.py"))):
        for piece in pieces(path.read_text(encoding="utf-8")):
            text = " ".join(re.sub(r"^#\s?", "", piece.text, flags=re.MULTILINE).split())
            if piece.place == "prose" and text and not text.startswith(("noqa", "type:", "pragma", "fmt:")):
                found.append(f"{path.relative_to(ROOT)}:{piece.line}: {text}")
    return random.Random(seed).sample(found, min(number, len(found)))  # noqa: S311 - a draw, not a secret


if __name__ == "__main__":
    seed, *rest = sys.argv[1:]
    number = int(rest[0]) if rest else 60
    sys.stdout.write("\n".join(drawn(seed, number, [ROOT / each for each in rest[1:] or PACKAGES])) + "\n")
