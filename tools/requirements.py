"""Print the project's requirements, one a line: what pip has to install before the kernel is built."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]
requirements = [*project["dependencies"], *extras["dev"], *extras["spark"], *extras["tables"], *extras["values"]]
sys.stdout.write("\n".join(requirements) + "\n")
