"""A release (`make release`): same bytes in every folder, its lists, and its life from installation to removal."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import click
import pytest

from cleanerd import __version__
from cleanerd.broker.agent_jar import build_of_jar
from cleanerd.cli.main import cli
from tests.cli.clean_log_dirs import CLEANED, COMPACT, NOW, keys, make
from tests.packaging.daemon_trial import try_daemon
from tools import components, man

REPOSITORY = Path(__file__).parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
NAMES = {
    f"cleanerd-{__version__}-cp311-abi3-manylinux_2_28_x86_64.whl",
    f"cleanerd-{__version__}.tar.gz",
    f"cleanerd_{__version__}_amd64.deb",
    f"cleanerd-{__version__}-1.x86_64.rpm",
    f"cleanerd-agent-{__version__}.jar",
    f"cleanerd-{__version__}.cdx.json",
    f"cleanerd-{__version__}-licences.txt",
    "SHA256SUMS",
}


@pytest.mark.slow
def test_licences_are_those_of_the_contents() -> None:
    """Linked crates, and the C library inside one of them; none that only builds or tests."""
    text = components.licences()
    named = set(re.findall(r"^={80}\n(\S+) \S+: \S", text, re.MULTILINE))
    assert {"lz4_flex", "pyo3", "zstd-sys", "zlib-rs"} <= named
    assert named.isdisjoint({"syn", "cc", "pyo3-macros", "pyo3-build-config", "cleanerd-kernel"})
    assert "zstd/LICENSE:\n" in text
    assert text.count("Permission is hereby granted, free of charge") >= 10


@pytest.mark.slow
def test_the_list_of_components_is_complete() -> None:
    """Crates, Python packages and their requirements, the agent by its build; the same list each time."""
    agent = build_of_jar() or "none"
    text = components.sbom(__version__, PROJECT["dependencies"], agent, "2026-01-01T00:00:00Z")
    assert text == components.sbom(__version__, PROJECT["dependencies"], agent, "2026-01-01T00:00:00Z")
    document = json.loads(text)
    found = {each["name"]: each for each in document["components"]}
    required = {re.split(r"[<>=]", requirement)[0] for requirement in PROJECT["dependencies"]}
    assert required | {"yarl", "pydantic-core", "zstd-sys"} <= found.keys()
    assert "pyspark" not in found, "an extra"
    assert all(each["licenses"] != [{"license": {"name": "not stated"}}] for each in found.values())
    assert found["cleanerd-agent"]["properties"][0]["value"] == agent
    assert len(document["dependencies"][0]["dependsOn"]) == len(document["components"])


@pytest.mark.slow
def test_each_command_has_a_man_page_with_its_options(tmp_path: Path) -> None:
    """From the definitions; roff sees no control character in their text."""
    pages = dict(man.pages(cli, "cleanerd"))
    assert {"cleanerd", "cleanerd-plan", "cleanerd-config-check", "cleanerd-spark-audit"} <= pages.keys()
    plan = cli.get_command(click.Context(cli), "plan")
    assert plan is not None
    for option in (each for each in plan.params if isinstance(each, click.Option) and not each.hidden):
        assert man.escaped(option.opts[-1]) in pages["cleanerd-plan"]
    assert man.escaped(".kstage\\x") == "\\&.kstage\\ex"
    known = (".TH ", ".SH ", ".B ", ".PP", ".TP", ".nf", ".fi")
    lines = [line for text in pages.values() for line in text.splitlines()]
    assert [line for line in lines if line.startswith((".", "'")) and not line.startswith(known)] == []
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "86400"}
    subprocess.run([sys.executable, "tools/man.py", tmp_path], cwd=REPOSITORY, env=environment, check=True)
    assert '"1970-01-02"' in gzip.decompress((tmp_path / "cleanerd-plan.1.gz").read_bytes()).decode()


def _build(source: Path, clone: Path) -> Path:
    """``make release`` in a clone of ``source``, uncommitted changes included."""
    subprocess.run(["git", "clone", "--quiet", source, clone], check=True)
    difference = ["git", "diff", "HEAD", "--binary"]
    changed = subprocess.run(difference, cwd=source, check=True, capture_output=True).stdout
    if changed:
        subprocess.run(["git", "apply", "--index"], cwd=clone, input=changed, check=True)
    command = [sys.executable, "tools/release.py", "dist/release"]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(clone / "target")
    return clone / "dist" / "release"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One built release."""
    return _build(REPOSITORY, tmp_path_factory.mktemp("one") / "clone")


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_same_bytes_in_another_folder(release: Path, tmp_path: Path) -> None:
    """Neither the folder nor the time of the build is in any file."""
    again = _build(release.parents[1], tmp_path / "another" / "folder")
    assert {path.name for path in release.iterdir()} == NAMES
    assert (again / "SHA256SUMS").read_text() == (release / "SHA256SUMS").read_text()
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=again, check=True)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_users_installation(release: Path, tmp_path: Path) -> None:
    """Without an index: version, doctor, plan, a cleaning, the daemon; an uninstall leaves only state."""
    (wheel,) = release.glob("*.whl")
    environment, house = tmp_path / "venv", tmp_path / "wheels"
    venv.create(environment, with_pip=True)
    pip = [environment / "bin/pip", "--disable-pip-version-check", "--quiet"]
    constraints = ["--constraint", REPOSITORY / "constraints.txt"]
    subprocess.run([*pip, "download", "--dest", house, *constraints, wheel], check=True)
    subprocess.run([*pip, "install", "--no-index", "--find-links", house, "cleanerd"], check=True)
    with zipfile.ZipFile(wheel) as archive:
        commit = archive.read("cleanerd/commit").decode().strip()
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    before = {path for path in environment.rglob("*") if "__pycache__" not in path.parts}

    def run(*words: object) -> str:
        command = [str(word) for word in (environment / "bin/cleanerd", *words)]
        done = subprocess.run(command, cwd=tmp_path, env=outer, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    assert re.fullmatch(r"[0-9a-f]{7,}\+?", commit)
    facts = f"commit {commit}, agent {build_of_jar()}"
    assert run("--version") == f"cleanerd, version {__version__} ({facts})\n"
    logs = make(tmp_path)
    settings = ["--no-config", "--set", f"cleanerd.state.dir={tmp_path / 'state'}", "--set", "cleanerd.disk.reserve=0"]
    run("doctor", *settings, logs)
    (planned,) = json.loads(run("plan", "--json", "--force", "--now-ms", NOW, *COMPACT, *settings, logs))["partitions"]
    assert (planned["topic"], planned["partition"]) == ("orders", 0)
    run("clean", "--yes", "--force", "--quiet", "--now-ms", NOW, *COMPACT, *settings, logs)
    assert keys(logs / "orders-0") == CLEANED
    try_daemon(environment / "bin/cleanerd", outer, logs, tmp_path)
    assert {path for path in environment.rglob("*") if "__pycache__" not in path.parts} == before
    subprocess.run([*pip, "uninstall", "--yes", "cleanerd"], check=True)
    left = [path for path in environment.rglob("*cleanerd*") if "__pycache__" not in path.parts and path.is_file()]
    assert left == []
    assert any((tmp_path / "state").iterdir())


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_rpm_installs_the_files_of_the_debian_package(release: Path, tmp_path: Path) -> None:
    """The same files below /opt; other programs' folders by RHEL's names; its settings file is kept."""
    (package,) = release.glob("*.rpm")
    (other,) = release.glob("*.deb")

    def listed(*command: object) -> str:
        return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout

    files = set(listed("rpm", "-qpl", package).splitlines())
    archive = subprocess.run(["dpkg-deb", "--fsys-tarfile", other], check=True, capture_output=True).stdout
    names = (
        subprocess.run(["tar", "--list"], input=archive, check=True, capture_output=True).stdout.decode().splitlines()
    )
    debian = {name.removeprefix(".") for name in names if not name.endswith("/")}
    zsh = {"/usr/share/zsh/vendor-completions/_cleanerd": "/usr/share/zsh/site-functions/_cleanerd"}
    assert {zsh.get(name, name) for name in debian} <= files
    assert listed("rpm", "-qpc", package).split() == ["/etc/cleanerd/cleanerd.toml"]
    requires = listed("rpm", "-qp", "--requires", package)
    assert "glibc >= 2.28" in requires
    assert "python3.11" in requires or f"python3.{sys.version_info.minor}" in requires
    assert listed("rpm", "-qp", "--queryformat", "%{BUILDHOST}", package) == "cleanerd"
    database = ["--root", str(tmp_path), "--nodeps", "--noscripts"]
    subprocess.run(["rpm", *database, "--install", package], check=True)
    assert (tmp_path / "opt/cleanerd/agent/cleanerd-agent.jar").is_file()
    subprocess.run(["rpm", *database, "--erase", "cleanerd"], check=True)
    assert not (tmp_path / "opt/cleanerd").exists()
