"""The Debian package (`make deb`): its requirements, and its life from installation to purge in an empty root."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from cleanerd import __version__
from tests.cli.clean_log_dirs import CLEANED, COMPACT, NOW, keys, make
from tools import deb as tool

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = REPOSITORY / "tools" / "debian"
WHEEL = "cleanerd-1.2.3-cp311-abi3-manylinux_2_34_aarch64.whl"


def test_it_requires_the_needs_of_the_wheel(tmp_path: Path) -> None:
    """The glibc of the wheel's name, its machine in Debian's terms, and the one Python its modules are compiled for."""
    assert tool.describe(tmp_path, Path(WHEEL)) == "cleanerd_1.2.3_arm64.deb"
    control = (tmp_path / "DEBIAN/control").read_text()
    depends = f"Depends: python3 (>= {tool.PYTHON}), python3 (<< {tool.NEXT_PYTHON}), libc6 (>= 2.34)\n"
    assert depends in control
    assert "Architecture: arm64\n" in control
    assert (tmp_path / "DEBIAN/conffiles").read_text() == "/etc/cleanerd/cleanerd.toml\n"
    assert {path.name for path in (tmp_path / "DEBIAN").iterdir()} == {
        "control",
        "conffiles",
        *(script.name for script in SCRIPTS.iterdir()),
    }
    assert all(os.access(tmp_path / "DEBIAN" / script.name, os.X_OK) for script in SCRIPTS.iterdir())


def test_a_wheel_without_a_glibc_in_its_name_is_refused(tmp_path: Path) -> None:
    """One of ``maturin develop`` runs on this machine and may run on no other."""
    with pytest.raises(SystemExit, match="make wheel"):
        tool.describe(tmp_path, Path("cleanerd-1.2.3-cp311-abi3-linux_x86_64.whl"))


def test_it_has_the_files_of_the_tree() -> None:
    """Only existing files are copied; the installed settings observe."""
    built = {"cleanerd/agent/cleanerd-agent.jar"}
    assert [source for source in tool.COPIES if source not in built and not (REPOSITORY / source).is_file()] == []
    assert '\n"cleanerd.mode" = "observe"\n' in (REPOSITORY / "config" / "cleanerd.toml").read_text()


def test_installing_starts_nothing(tmp_path: Path) -> None:
    """An operator configures the log directories first; a running service is restarted."""
    called = tmp_path / "called"
    for name in ("systemctl", "systemd-sysusers", "systemd-tmpfiles"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {called}\n')
        (tmp_path / name).chmod(0o755)
    script = (SCRIPTS / "postinst").read_text().replace("/run/systemd/system", str(tmp_path))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", "-c", script, "postinst", "configure", ""], env=environment, capture_output=True, text=True, check=True
    )
    calls = called.read_text().splitlines()
    assert [call for call in calls if call.startswith("systemctl")] == [
        "systemctl daemon-reload",
        "systemctl try-restart cleanerd.service",
    ]
    assert "/etc/cleanerd/cleanerd.toml" in done.stdout


@dataclass(frozen=True)
class Root:
    """A system in a directory: this host's list of packages, and none of their files."""

    path: Path

    def dpkg(self, *words: str | Path) -> str:
        """Run dpkg; returns its output on both streams."""
        database = self.path / "var/lib/dpkg"
        options = [f"--instdir={self.path}", f"--admindir={database}", "--force-script-chrootless", "--log=/dev/null"]
        # dpkg sets the owners of files.
        program = ["dpkg"] if os.geteuid() == 0 else ["fakeroot", "dpkg"]
        done = subprocess.run([*program, *options, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run the installed program; its own first line names /opt."""
        program = self.path / "opt/cleanerd/bin"
        return subprocess.run(
            [program / "python3", "-sE", program / "cleanerd", *map(str, words)],
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of ``make deb`` in a directory of its own."""
    out_dir = tmp_path_factory.mktemp("deb")
    for program, *words in (("tools/wheel.py", out_dir), ("tools/deb.py", out_dir, out_dir)):
        subprocess.run([sys.executable, program, *words], cwd=REPOSITORY, check=True, capture_output=True)
    (built,) = out_dir.glob("*.deb")
    return built


@pytest.fixture
def system(tmp_path: Path) -> Root:
    """A root with the host's own list of packages, so that the package's requirements are checked."""
    database = tmp_path / "root/var/lib/dpkg"
    for name in ("info", "updates", "triggers"):
        (database / name).mkdir(parents=True)
    shutil.copy("/var/lib/dpkg/status", database)
    (tmp_path / "root/etc").mkdir()
    return Root(tmp_path / "root")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_installed_used_removed_purged(package: Path, system: Root, tmp_path: Path) -> None:
    """Users, directories, units, completion; it cleans; an operator's files survive a removal, and no file a purge."""
    reported = system.dpkg("--install", package)
    assert "systemctl enable --now cleanerd" in reported
    assert {line.split(":")[0] for line in (system.path / "etc/passwd").open()} == {"kafka", "cleanerd"}
    assert stat.S_IMODE((system.path / "var/lib/cleanerd").stat().st_mode) == 0o750
    for name in ("usr/lib/systemd/system/cleanerd.service", "opt/cleanerd/agent/cleanerd-agent.jar"):
        assert (system.path / name).is_file(), name
    assert not list(system.path.glob("*/systemd/system/kafka.service.d")), "the broker's unit belongs to its operator"
    for shell, path in tool.COMPLETION.items():
        assert "_CLEANERD_COMPLETE" in (system.path / path).read_text(), shell
    assert system.run("--version").stdout.split()[2] == __version__

    logs = make(tmp_path)
    options = ["--set", f"cleanerd.state.dir={tmp_path / 'state'}", "--set", "cleanerd.disk.reserve=0", "--no-config"]
    cleaned = system.run("clean", "--yes", "--force", "--now-ms", NOW, "--json", *COMPACT, *options, logs)
    assert cleaned.returncode == 0, cleaned.stderr
    assert json.loads(cleaned.stdout)["partitions"]
    assert keys(logs / "orders-0") == CLEANED

    settings = system.path / "etc/cleanerd/cleanerd.toml"
    settings.write_text('"cleanerd.log.dirs" = "/kafka"\n')
    (system.path / "var/lib/cleanerd/delegations.json").write_text("{}")
    assert "undelegate" in system.dpkg("--remove", "cleanerd")
    assert settings.read_text() == '"cleanerd.log.dirs" = "/kafka"\n'
    assert not (system.path / "opt").exists()
    assert not (system.path / "usr").exists()
    system.dpkg("--purge", "cleanerd")
    assert not settings.parent.exists()
    assert not (system.path / "var/lib/cleanerd").exists()
