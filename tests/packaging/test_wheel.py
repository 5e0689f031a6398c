"""The wheel: it has the whole package and the operators' files, and runs without any other installation."""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from cleanerd import __version__
from tests.cli.clean_log_dirs import CLEANED, COMPACT, NOW, keys, make
from tests.packaging.daemon_trial import try_daemon
from tools import version as versions
from tools import wheel as tool

REPOSITORY = Path(__file__).parents[2]

WITHOUT = """
import importlib, pkgutil, sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pyspark", "py4j", "pandas", "pyarrow", "hypothesis", "pytest"}:
            raise ModuleNotFoundError(f"no {name} here", name=name)
sys.meta_path.insert(0, Nothing())
import cleanerd, cleanerd_lab
packages = (pkgutil.walk_packages(package.__path__, f"{package.__name__}.") for package in (cleanerd, cleanerd_lab))
for module in (module for found in packages for module in found):
    if module.name.startswith("cleanerd.spark") or "spark" in module.name or module.name.endswith("__main__"):
        continue
    importlib.import_module(module.name)
from cleanerd.cli.main import run
for verb in ("plan", "clean", "explain", "doctor"):
    assert run([verb, "--help"]) == 0
"""


def _tracked(*patterns: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return set(listed.stdout.split())


@pytest.mark.long
def test_nothing_but_the_pipeline_needs_spark() -> None:
    """An operator's host has no pyspark, pandas, pyarrow: every other module is imported without."""
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_dependencies_are_pinned_and_listed() -> None:
    """The wheel's requirements are those that the constraints pin, so that builds do not differ by their day."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in (REPOSITORY / "constraints.txt").open()}
    names = {entry.split(">")[0].split("<")[0].lower() for entry in project["dependencies"]}
    assert names <= pinned


def test_every_file_has_the_version_of_pyproject(tmp_path: Path) -> None:
    """Every place with the version is found, and set together with the others."""
    assert versions.wanted() == __version__
    assert versions.differing(REPOSITORY, __version__) == []
    for name in versions.PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, tmp_path / name)
    before = versions.differing(tmp_path, "7.8.9")
    assert {place.partition(":")[0] for place in before} == versions.PLACES.keys()
    versions.replace(tmp_path, "7.8.9")
    assert versions.differing(tmp_path, "7.8.9") == []
    assert "0.1.0" not in (tmp_path / "deploy/helm/Chart.yaml").read_text()


def test_shared_files_are_added_and_listed(tmp_path: Path) -> None:
    """The list of contents has the added files, so that uninstalling removes them; the same bytes each time."""
    plain = tmp_path / "cleanerd-1.0-py3-none-any.whl"
    with zipfile.ZipFile(plain, "w") as wheel:
        wheel.writestr("cleanerd/__init__.py", "")
        wheel.writestr("cleanerd-1.0.dist-info/RECORD", "cleanerd/__init__.py,,\ncleanerd-1.0.dist-info/RECORD,,\n")
    outputs = []
    for name in ("a.whl", "b.whl"):
        tool.with_shared(plain, tmp_path / name)
        outputs.append((tmp_path / name).read_bytes())
    assert outputs[0] == outputs[1]
    with zipfile.ZipFile(tmp_path / "a.whl") as wheel:
        _assert_complete(wheel, "1.0")


def _assert_complete(wheel: zipfile.ZipFile, version: str) -> None:
    names = wheel.namelist()
    shared = f"cleanerd-{version}.data/data/share/cleanerd"
    expected = {f"{shared}/{path}" for path in _tracked("systemd", "config")}
    assert expected <= set(names)
    doc = f"cleanerd-{version}.data/data/share/doc/cleanerd"
    pages = {f"{doc}/{page.removeprefix('docs/')}" for page in _tracked("docs/*.md")}
    assert pages <= set(names), "settings and alerts name them"
    assert f"{shared}/systemd/cleanerd.service" in names
    assert f"{shared}/config/cleanerd.toml" in names
    listed = [row[0] for row in csv.reader(io.StringIO(wheel.read(f"cleanerd-{version}.dist-info/RECORD").decode()))]
    assert sorted(listed) == sorted(names)
    assert listed[-1] == f"cleanerd-{version}.dist-info/RECORD"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of ``make wheel`` in a directory of its own."""
    out_dir = tmp_path_factory.mktemp("dist")
    for command in (["tools/wheel.py", str(out_dir)], ["-m", "maturin", "sdist", "--out", str(out_dir)]):
        subprocess.run([sys.executable, *command], cwd=REPOSITORY, check=True, capture_output=True)
    return out_dir


@pytest.mark.long
def test_the_wheel_holds_all_of_the_package(built: Path) -> None:
    """Kernel, agent, every tracked file of the package - the status page's too - and no more."""
    (path,) = built.glob("*.whl")
    assert path.name.startswith(f"cleanerd-{__version__}-cp311-abi3-manylinux")
    with zipfile.ZipFile(path) as wheel:
        _assert_complete(wheel, __version__)
        assert b"\npulp " in wheel.read(f"cleanerd-{__version__}.dist-info/licenses/CRATES.txt"), (
            "a crate of the kernel"
        )
        tops = ("cleanerd/", "cleanerd_lab/", "pyspark_kafka_segments/")
        package = {name for name in wheel.namelist() if name.startswith(tops)}
    assert "pyspark_kafka_segments/__init__.py" in package, "where Spark searches data sources"
    assert package == {
        *_tracked("cleanerd", "cleanerd_lab", "pyspark_kafka_segments"),
        "cleanerd/_kernel.abi3.so",
        "cleanerd/commit",
        "cleanerd/agent/cleanerd-agent.jar",
    }


@pytest.mark.long
def test_the_source_distribution_can_be_built(built: Path) -> None:
    """All sources of package, kernel and agent; nothing of tests, caches, secrets."""
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    packages = ("cleanerd", "cleanerd_lab", "pyspark_kafka_segments")
    assert _tracked(*packages, "kernel/src", "kernel/python", "agent", "systemd", "config", "tools") <= names
    assert {"Cargo.lock", "LICENSE", "README.md", "pyproject.toml", "cleanerd/agent/cleanerd-agent.jar"} <= names
    assert not [name for name in names if name.startswith(("tests/", ".cache", ".git", "target/", ".venv"))]


@pytest.mark.long
def test_it_runs_in_an_empty_environment(built: Path, tmp_path: Path) -> None:
    """pip, the wheel and its requirements; then from another directory, without access to this repository."""
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    pip = [str(environment / "bin/pip"), "--disable-pip-version-check", "--quiet"]
    (path,) = built.glob("*.whl")
    subprocess.run([*pip, "install", "-c", str(REPOSITORY / "constraints.txt"), str(path)], check=True)
    subprocess.run([*pip, "check"], check=True)
    program = environment / "bin/cleanerd"
    (tmp_path / "elsewhere").mkdir()
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}

    def run(*command: object) -> str:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=tmp_path / "elsewhere",
            env=outer,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run(program, "--version").split()[2] == __version__
    jar = Path(run(program, "agent", "path").strip())
    assert jar.is_relative_to(environment)
    assert jar.stat().st_size > 50_000
    assert run(program, "config", "generate") == (environment / "share/cleanerd/config/cleanerd.toml").read_text()
    assert run(environment / "bin/python", "-c", "from cleanerd import _kernel; print(_kernel.__file__)").startswith(
        str(environment)
    )
    logs = make(tmp_path)
    settings = ["--set", f"cleanerd.state.dir={tmp_path / 'state'}", "--set", "cleanerd.disk.reserve=0"]
    run(program, "clean", "--yes", "--force", "--quiet", "--now-ms", NOW, *COMPACT, *settings, logs)
    assert keys(logs / "orders-0") == CLEANED
    try_daemon(program, outer, logs, tmp_path)
    subprocess.run([*pip, "uninstall", "--yes", "cleanerd"], check=True)
    assert not list((environment / "share").rglob("*.service"))
    assert not program.exists()
