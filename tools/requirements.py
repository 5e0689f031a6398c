"""Print requirements from pyproject.toml, one per line, for pip: `requirements.py core`, or the names of extras."""

import sys
import tomllib
from pathlib import Path

document = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
groups = {
    "core": [*document["build-system"]["requires"], *document["project"]["dependencies"]],
    **document["project"]["optional-dependencies"],
}
sys.stdout.write("\n".join(requirement for name in sys.argv[1:] for requirement in groups[name]) + "\n")
