"""Build the wheel: ``python tools/wheel.py OUT_DIR``. Kernel and agent by maturin, then what operators need is added.

maturin puts into a wheel what lies in the Python package. Units, examples and the pages of docs/ do not belong
there; as the wheel's data they land in ``share/`` of whatever it is installed into. Same sources, same bytes.
"""

import base64
import csv
import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREES = {"systemd": "share/cleanerd/systemd", "config": "share/cleanerd/config"}
PAGES = [str(page.relative_to(ROOT / "docs")) for page in sorted((ROOT / "docs").rglob("*.*"))]
FILES = {f"docs/{page}": f"share/doc/cleanerd/{page}" for page in PAGES} | {
    "CHANGELOG.md": "share/doc/cleanerd/CHANGELOG.md"
}
AGENT = "cleanerd/agent/cleanerd-agent.jar"
BEGINNING_OF_TIME = (1980, 1, 1, 0, 0, 0)


def shared() -> dict[str, bytes]:
    """Path below the prefix -> contents."""
    found = {target: (ROOT / source).read_bytes() for source, target in FILES.items()}
    for source, target in TREES.items():
        for file in sorted((ROOT / source).rglob("*")):
            if file.is_file():
                found[f"{target}/{file.relative_to(ROOT / source)}"] = file.read_bytes()
    return found


def with_shared(wheel: Path, target: Path) -> None:
    """Write ``wheel`` once more, with the shared files and a list of contents that knows them."""
    name, version, *_ = wheel.name.split("-")
    record_name = f"{name}-{version}.dist-info/RECORD"
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as result:
        record = list(csv.reader(io.StringIO(source.read(record_name).decode())))
        for entry in source.infolist():
            if entry.filename != record_name:
                result.writestr(entry, source.read(entry), zipfile.ZIP_DEFLATED)
        for path, data in shared().items():
            entry = zipfile.ZipInfo(f"{name}-{version}.data/data/{path}", BEGINNING_OF_TIME)
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
        subprocess.run(command, cwd=ROOT, check=True)
        (wheel,) = Path(work_dir).glob("*.whl")
        with_shared(wheel, out_dir / wheel.name)
        sys.stdout.write(f"{out_dir / wheel.name}\n")


if __name__ == "__main__":
    main()
