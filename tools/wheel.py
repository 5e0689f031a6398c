"""Build the wheel: ``python tools/wheel.py OUT_DIR [MATURIN_OPTION...]``. maturin's, and what operators need besides.

maturin puts into a wheel what lies in the Python package. Units, examples and the pages of docs/ do not belong
there; as the wheel's data they land in ``share/`` of the environment that it is installed into. The licences of the
crates inside the kernel and the commit of the sources are added, too. Same sources, same bytes.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parent.parent
TREES = {"systemd": "share/cleanerd/systemd", "config": "share/cleanerd/config"}
PAGES = [str(page.relative_to(ROOT / "docs")) for page in sorted((ROOT / "docs").rglob("*.*"))]
FILES = {f"docs/{page}": f"share/doc/cleanerd/{page}" for page in PAGES} | {
    "CHANGELOG.md": "share/doc/cleanerd/CHANGELOG.md"
}
AGENT = "cleanerd/agent/cleanerd-agent.jar"
LICENCES = [sys.executable, str(ROOT / "tools" / "components.py"), "licences"]
BEGINNING_OF_TIME = (1980, 1, 1, 0, 0, 0)


def commit() -> str:
    """The sources' commit: CLEANERD_COMMIT, else git's with a ``+`` where tracked files differ; empty without git."""
    if named := os.environ.get("CLEANERD_COMMIT"):
        return named
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def shared() -> dict[str, bytes]:
    """Path below the prefix -> contents."""
    found = {target: (ROOT / source).read_bytes() for source, target in FILES.items()}
    for source, target in TREES.items():
        for file in sorted((ROOT / source).rglob("*")):
            if file.is_file():
                found[f"{target}/{file.relative_to(ROOT / source)}"] = file.read_bytes()
    return found


def with_shared(wheel: Path, target: Path, texts: Mapping[str, bytes] = MappingProxyType({})) -> None:
    """Write ``wheel`` once more, with the shared files, ``texts`` (path in the wheel -> bytes), and a complete list."""
    name, version, *_ = wheel.name.split("-")
    record_name = f"{name}-{version}.dist-info/RECORD"
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as result:
        record = list(csv.reader(io.StringIO(source.read(record_name).decode())))
        for entry in source.infolist():
            if entry.filename != record_name:
                result.writestr(entry, source.read(entry), zipfile.ZIP_DEFLATED)
        added = {f"{name}-{version}.data/data/{path}": data for path, data in shared().items()}
        for path, data in {**added, **texts}.items():
            entry = zipfile.ZipInfo(path, BEGINNING_OF_TIME)
            entry.external_attr = 0o100644 << 16
            result.writestr(entry, data, zipfile.ZIP_DEFLATED)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append([entry.filename, f"sha256={digest}", str(len(data))])
        # By the wheel's own rules the list comes last, and says nothing of itself.
        rows = sorted(row for row in record if row[0] != record_name)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*rows, [record_name, "", ""]])
        entry = zipfile.ZipInfo(record_name, BEGINNING_OF_TIME)
        entry.external_attr = 0o100644 << 16
        result.writestr(entry, text.getvalue(), zipfile.ZIP_DEFLATED)


def main() -> None:
    """Build it into the directory that is named."""
    out_dir = Path(sys.argv[1])
    if not (ROOT / AGENT).is_file():
        sys.exit(f"{AGENT} is missing: run agent/build.sh first")
    out_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work_dir:
        command = [sys.executable, "-m", "maturin", "build", "--quiet", "--release", "--locked", "--out", work_dir]
        subprocess.run([*command, *sys.argv[2:]], cwd=ROOT, check=True)
        (wheel,) = Path(work_dir).glob("*.whl")
        texts = {"cleanerd/commit": f"{commit()}\n".encode()}
        dist_info = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
        texts[f"{dist_info}/licenses/CRATES.txt"] = subprocess.run(LICENCES, check=True, capture_output=True).stdout
        with_shared(wheel, out_dir / wheel.name, texts)
        sys.stdout.write(f"{out_dir / wheel.name}\n")


if __name__ == "__main__":
    main()
