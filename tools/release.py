"""Build a release: ``python tools/release.py OUT_DIR``. RELEASING.md lists the files and says who publishes them.

Wheel, source distribution, agent, Debian package, RPM, list of components (SBOM), licences, checksums. The same commit
gives the same bytes in every folder: times come from SOURCE_DATE_EPOCH (default: the commit's), paths of the build stay
out of the kernel, and the C library that the wheel needs is the one named below, whatever this machine has.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path

import deb

ROOT = Path(__file__).resolve().parent.parent
GLIBC = "2.28"
"""That of RHEL 8 and of nothing older; Debian 11 has 2.31."""
PROGRAMS = {"javac": "openjdk-17-jdk-headless", "dpkg-deb": "dpkg", "rpmbuild": "rpm"}
RPM_MACROS = {
    "_buildhost": "cleanerd",
    "use_source_date_epoch_as_buildtime": "1",
    "clamp_mtime_to_source_date_epoch": "1",
    "source_date_epoch_from_changelog": "0",
    "_binary_payload": "w6.gzdio",
}
"""What keeps time and name of the machine out of an RPM."""


def run(*command: str | Path) -> str:
    """Run it in the repository; what it prints. Its errors go where ours go."""
    done = subprocess.run([str(word) for word in command], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def prepare() -> None:
    """Check for the programs, and set what makes the build the same everywhere."""
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if importlib.util.find_spec("ziglang") is None:
        missing.append("ziglang (make release installs it)")
    if missing:
        sys.exit(f"install these first: {', '.join(missing)}")
    os.umask(0o022)
    os.environ.setdefault("SOURCE_DATE_EPOCH", run("git", "log", "-1", "--format=%ct"))
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    flags = [f"--remap-path-prefix={cargo}=cargo", f"--remap-path-prefix={ROOT}=cleanerd"]
    os.environ["CARGO_ENCODED_RUSTFLAGS"] = "\x1f".join(flags)
    os.environ["CARGO_TARGET_DIR"] = str(ROOT / "target" / "release-build")
    # maturin looks for zig beside the interpreter that runs it.
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def build_rpm(wheel: Path, out_dir: Path, version: str, work_dir: Path) -> None:
    """The tree of the Debian package with RHEL's paths, for its versioned Python."""
    tree = work_dir / "rpm-tree"
    tree.mkdir(mode=0o755)
    deb.stage(wheel, tree, f"/usr/bin/python{deb.PYTHON}")
    functions = tree / "usr/share/zsh/site-functions"
    functions.mkdir()
    (tree / deb.COMPLETION["zsh"]).rename(functions / "_cleanerd")
    (tree / deb.COMPLETION["zsh"]).parent.rmdir()
    macros = {
        **RPM_MACROS,
        "version": version,
        "release_python": deb.PYTHON,
        "glibc": GLIBC,
        "tree": str(tree),
        "_topdir": str(work_dir / "rpmbuild"),
        "_rpmdir": str(work_dir / "rpms"),
    }
    defines = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
    run("rpmbuild", "--quiet", "-bb", *defines, ROOT / "tools" / "rpm.spec")
    (built,) = (work_dir / "rpms").rglob("*.rpm")
    shutil.move(built, out_dir / built.name)


def agent_build(jar: Path) -> str:
    """The build id in the jar's manifest."""
    with zipfile.ZipFile(jar) as archive:
        manifest = archive.read("META-INF/MANIFEST.MF").decode()
    (line,) = (line for line in manifest.splitlines() if line.startswith("Cleanerd-Agent-Build:"))
    return line.partition(":")[2].strip()


def write_sums(out_dir: Path) -> None:
    """``SHA256SUMS``, for ``sha256sum --check``."""
    files = sorted(path for path in out_dir.iterdir() if path.name != "SHA256SUMS")
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (out_dir / "SHA256SUMS").write_text("".join(lines), encoding="ascii")


def main() -> None:
    """Build it into the directory that is named; what was in it goes."""
    out_dir = Path(sys.argv[1]).resolve()
    prepare()
    shutil.rmtree(out_dir, ignore_errors=True)
    out_dir.mkdir(parents=True)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    run("bash", "agent/build.sh")
    jar = ROOT / "cleanerd" / "agent" / "cleanerd-agent.jar"
    glibc_tag = f"manylinux_{GLIBC.replace('.', '_')}"
    run(sys.executable, "tools/wheel.py", out_dir, "--zig", "--compatibility", glibc_tag)
    (wheel,) = out_dir.glob("*.whl")
    run(sys.executable, "-m", "maturin", "sdist", "--out", out_dir)
    run(sys.executable, "tools/deb.py", out_dir, out_dir)
    with tempfile.TemporaryDirectory() as work_dir:
        build_rpm(wheel, out_dir, version, Path(work_dir))
    shutil.copyfile(jar, out_dir / f"cleanerd-agent-{version}.jar")
    timestamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"])))
    listed = run(sys.executable, "tools/components.py", "sbom", agent_build(jar), timestamp)
    (out_dir / f"cleanerd-{version}.cdx.json").write_text(f"{listed}\n", encoding="utf-8")
    texts = run(sys.executable, "tools/components.py", "licences")
    (out_dir / f"cleanerd-{version}-licences.txt").write_text(f"{texts}\n", encoding="utf-8")
    write_sums(out_dir)
    sys.stdout.write((out_dir / "SHA256SUMS").read_text(encoding="ascii"))


if __name__ == "__main__":
    main()
