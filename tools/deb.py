"""Build the Debian package: ``python tools/deb.py WHEEL_DIR OUT_DIR``. The wheel of this version, and what it asks for.

It is the installation that docs/install.md describes, made beforehand below /opt/cleanerd: a virtual environment over
the system's python3, the units, the users, the directories, completion, and a settings file that observes. It starts
nothing, and it puts no drop-in into the broker's unit: those lie in /opt/cleanerd/share/cleanerd/systemd. Compiled
modules are for one minor version of Python, that of the interpreter which runs this; the package asks for it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PREFIX = Path("opt/cleanerd")
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
NEXT_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor + 1}"
COMPLETION = {
    "bash": "usr/share/bash-completion/completions/cleanerd",
    "zsh": "usr/share/zsh/vendor-completions/_cleanerd",
    "fish": "usr/share/fish/vendor_completions.d/cleanerd.fish",
}
COPIES = {
    "systemd/cleanerd.service": "usr/lib/systemd/system/cleanerd.service",
    "systemd/sysusers.d/cleanerd.conf": "usr/lib/sysusers.d/cleanerd.conf",
    "systemd/tmpfiles.d/cleanerd.conf": "usr/lib/tmpfiles.d/cleanerd.conf",
    "systemd/kafka.env": f"{PREFIX}/agent/kafka.env",
    "cleanerd/agent/cleanerd-agent.jar": f"{PREFIX}/agent/cleanerd-agent.jar",
    "config/cleanerd.toml": "etc/cleanerd/cleanerd.toml",
    "LICENSE": "usr/share/doc/cleanerd/copyright",
}
PROGRAM = """\
#!/opt/cleanerd/bin/python3 -sE
import sys
from cleanerd.cli.main import main
sys.argv[0] = "cleanerd"
sys.exit(main())
"""
CONTROL = """\
Package: cleanerd
Version: {version}
Architecture: {architecture}
Maintainer: the cleanerd project <root@localhost>
Section: admin
Priority: optional
Installed-Size: {size_kib}
Depends: python3 (>= {python}), python3 (<< {next_python}), libc6 (>= {glibc})
Recommends: systemd
Description: independent log cleaner for Apache Kafka
 Reads the segment files in a broker's log directories, keeps for every key the
 record that should win, and puts the cleaned segments in place of the old ones.
 It begins by observing: it changes nothing until cleanerd.mode says so.
"""


def stage(wheel: Path, tree: Path, python: str = "/usr/bin/python3") -> None:
    """Everything that the package installs, below ``tree``; ``python`` is the interpreter of the installed system."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--ignore-installed"]
    where = ["--root", str(tree), "--prefix", f"/{PREFIX}", "--no-compile", "--no-warn-script-location"]
    subprocess.run([*pip, *where, "-c", str(ROOT / "constraints.txt"), f"{wheel}[erase]"], check=True)
    prefix = tree / PREFIX
    shutil.rmtree(prefix / "bin")
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python3").symlink_to(python)
    (prefix / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON}\n")
    _write(prefix / "bin" / "cleanerd", PROGRAM, 0o755)
    # pip's notes of where it found the wheel and of scripts that were removed above: they name this build's folders.
    for note in ("RECORD", "direct_url.json"):
        for path in prefix.glob(f"lib/python*/site-packages/*.dist-info/{note}"):
            path.unlink()
    for source, target in COPIES.items():
        (tree / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / source, tree / target)
    (tree / "usr/bin").mkdir(parents=True, exist_ok=True)
    (tree / "usr/bin/cleanerd").symlink_to(f"/{PREFIX}/bin/cleanerd")
    site = prefix / "lib" / f"python{PYTHON}" / "site-packages"
    for shell, target in COMPLETION.items():
        call = "from cleanerd.cli.main import main; sys.argv[0] = 'cleanerd'; sys.exit(main())"
        _write(tree / target, _printed(site, call, _CLEANERD_COMPLETE=f"{shell}_source"), 0o644)
    subprocess.run(
        [sys.executable, str(ROOT / "tools" / "man.py"), str(tree / "usr/share/man/man1")],
        env={**os.environ, "PYTHONPATH": str(site)},
        check=True,
    )
    # Bytecode that Python uses without comparing the source's time, which dpkg sets; also in place of what the calls
    # above have left.
    options = ["-q", "-f", "-s", str(tree), "-p", "/", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([sys.executable, "-m", "compileall", *options, str(site)], check=True)


def _printed(site: Path, code: str, **environment: str) -> str:
    environment = {**os.environ, **environment, "PYTHONPATH": str(site)}
    command = [sys.executable, "-c", f"import sys; {code}"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def describe(tree: Path, wheel: Path) -> str:
    """Write ``DEBIAN/``; the package's file name."""
    _, version, _, _, platform = wheel.stem.split("-")
    # manylinux_2_34_x86_64: the glibc, then the machine. A wheel of `maturin develop` has no glibc in its name.
    family, _, rest = platform.partition("_")
    if family != "manylinux":
        sys.exit(f"{wheel.name}: not a manylinux wheel, make one with make wheel")
    major, minor, machine = rest.split("_", 2)
    architecture = MACHINES[machine]
    size_bytes = sum(path.lstat().st_size for path in tree.rglob("*") if not path.is_dir())
    control = CONTROL.format(
        version=version,
        architecture=architecture,
        size_kib=-(-size_bytes // 1024),
        python=PYTHON,
        next_python=NEXT_PYTHON,
        glibc=f"{major}.{minor}",
    )
    _write(tree / "DEBIAN/control", control, 0o644)
    _write(tree / "DEBIAN/conffiles", "/etc/cleanerd/cleanerd.toml\n", 0o644)
    for script in sorted((ROOT / "tools" / "debian").iterdir()):
        _write(tree / "DEBIAN" / script.name, script.read_text(encoding="utf-8"), 0o755)
    return f"cleanerd_{version}_{architecture}.deb"


def _write(path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def main() -> None:
    """Build it into the directory that is named."""
    wheel_dir, out_dir = Path(sys.argv[1]), Path(sys.argv[2])
    wheel = max(wheel_dir.glob("cleanerd-*-manylinux_*.whl"), key=lambda path: path.stat().st_mtime_ns, default=None)
    if wheel is None:
        sys.exit(f"{wheel_dir} has no wheel of cleanerd: run make wheel first")
    os.umask(0o022)
    out_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work_dir:
        tree = Path(work_dir) / "tree"
        tree.mkdir(mode=0o755)
        stage(wheel, tree)
        package = out_dir / describe(tree, wheel)
        command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z6", "--build", str(tree), str(package)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        sys.stdout.write(f"{package}\n")


if __name__ == "__main__":
    main()
