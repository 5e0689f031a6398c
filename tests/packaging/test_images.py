"""Dockerfile and compose file, checked without an engine, and the build's steps done by hand."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cleanerd import __version__

REPOSITORY = Path(__file__).parents[2]
CONFIG = REPOSITORY / "config"
PINNED = re.compile(r"[\w./-]+:v?\d+\.\d+\.\d+(-[\w.-]+)?(@sha256:[0-9a-f]{64})?")


def _instructions() -> list[tuple[str, str]]:
    """Dockerfile: instruction and argument, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (REPOSITORY / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1].strip()) for line in lines if line.strip()]


def _stages() -> list[list[tuple[str, str]]]:
    stages: list[list[tuple[str, str]]] = []
    for instruction in _instructions():
        if instruction[0] == "FROM":
            stages.append([])
        stages[-1].append(instruction)
    return stages


def _from_context(stage: list[tuple[str, str]]) -> list[str]:
    """The files that COPY takes from the repository."""
    copies = [argument.split() for name, argument in stage if name == "COPY" and not argument.startswith("--from")]
    return [source for words in copies for source in words[:-1]]


def _ignored(path: str) -> bool:
    """.dockerignore: the last pattern that matches the path, or a parent directory, decides."""
    ignored = False
    for line in (REPOSITORY / ".dockerignore").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!")
        places = ["/".join(path.split("/")[:depth]) for depth in range(1, path.count("/") + 2)]
        plain = pattern.removeprefix("**/")
        if any(
            fnmatch.fnmatch(place, pattern) or ("**/" in pattern and fnmatch.fnmatch(place.split("/")[-1], plain))
            for place in places
        ):
            ignored = not line.startswith("!")
    return ignored


def test_bases_are_pinned() -> None:
    """To a release and a digest, because a tag may be moved. The installed Python and the running one are the same."""
    names = [stage[0][1].partition(" AS ")[2] for stage in _stages()]
    bases = [stage[0][1].split()[0] for stage in _stages()]
    assert names == ["build", "install", "spark", ""]
    assert bases.pop(names.index("spark")) == "install"
    assert all(PINNED.fullmatch(base) and "@sha256:" in base for base in bases), bases
    assert bases[1] == bases[2]
    rust = re.search(r'rust-version = "([\d.]+)"', (REPOSITORY / "Cargo.toml").read_text())
    assert rust is not None
    assert bases[0].startswith(f"rust:{rust[1]}.")


def test_the_image_runs_as_any_user_and_has_a_health_check() -> None:
    """A user, a health check, no shell in between that would swallow SIGTERM; and a state directory for any user."""
    final = dict(_stages()[-1])
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", final["USER"])
    assert json.loads(final["ENTRYPOINT"]) == ["cleanerd"]
    assert json.loads(final["CMD"]) == ["run", "--config", "/etc/cleanerd"]
    check = json.loads(final["HEALTHCHECK"].partition("CMD ")[2])
    assert check == ["cleanerd", "status", "--quiet", *json.loads(final["CMD"])[1:]]
    assert "--mode 1777 /var/lib/cleanerd /run/cleanerd" in final["RUN"]
    assert "STATE_DIRECTORY=/var/lib/cleanerd" in final["ENV"]
    assert "RUNTIME_DIRECTORY=/run/cleanerd" in final["ENV"]


def test_every_copied_file_exists() -> None:
    """In the repository, and not excluded by .dockerignore."""
    for stage in _stages():
        for source in _from_context(stage):
            assert (REPOSITORY / source).exists(), source
            assert not _ignored(source), source


def test_the_context_holds_sources_only() -> None:
    """No build of this machine is in the image: neither its kernel nor its agent, no caches, no history."""
    builds = ["cleanerd/_kernel.abi3.so", "cleanerd/agent/cleanerd-agent.jar", "kernel/target/release", "target"]
    caches = [".git", ".venv", ".cache", "cleanerd/cli/__pycache__/x.pyc", "kernel/fuzz/Cargo.toml", "tests"]
    left_out = [*builds, *caches]
    assert all(_ignored(path) for path in left_out), [path for path in left_out if not _ignored(path)]
    listing = ["git", "ls-files", "cleanerd", "cleanerd_lab", "kernel", "agent"]
    tracked = subprocess.run(listing, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    sources = [path for path in tracked.stdout.split() if not path.startswith("kernel/fuzz")]
    assert not [path for path in sources if _ignored(path)]


@pytest.mark.long
def test_the_build_stage_has_all_it_needs(tmp_path: Path) -> None:
    """Its COPY and RUN steps on the files outside of .dockerignore, in an empty directory: agent, kernel, wheel."""
    context = tmp_path / "src"
    context.mkdir()
    for instruction, argument in _stages()[0]:
        words = shlex.split(argument)
        if instruction == "COPY":
            for source in words[:-1]:
                _copy(source, context / (words[-1] if (REPOSITORY / source).is_dir() else source))
        elif instruction == "RUN" and ("agent/build.sh" in argument or "tools/wheel.py" in argument):
            steps = argument.replace("/build/bin/python", sys.executable).replace("/dist", str(tmp_path / "dist"))
            environment = {**os.environ, "CARGO_TARGET_DIR": str(REPOSITORY / "target")}
            subprocess.run(["bash", "-ec", steps], cwd=context, env=environment, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert __version__ in wheel.name


def _copy(source: str, target: Path) -> None:
    if (REPOSITORY / source).is_file():
        shutil.copy2(REPOSITORY / source, target)
        return
    for directory, _, names in os.walk(REPOSITORY / source):
        for name in names:
            relative = (Path(directory) / name).relative_to(REPOSITORY)
            if not _ignored(str(relative)):
                place = target / relative.relative_to(source)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / relative, place)


def _compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CONFIG / "compose.yml").read_text())
    return found


def test_compose_fits_together() -> None:
    """Volumes, mounted files, images, dependencies: every name exists."""
    compose = _compose()
    services = compose["services"]
    assert services.keys() == {"agent", "kafka", "cleanerd", "prometheus", "grafana"}
    for name, service in services.items():
        assert PINNED.fullmatch(service["image"]), name
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (CONFIG / source).exists(), volume
        assert services.keys() >= service.get("depends_on", {}).keys()
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), port
    for dependency in services["cleanerd"]["depends_on"]:
        assert "healthcheck" in services[dependency]
    assert (CONFIG / services["agent"]["build"]["context"] / "Dockerfile").resolve() == REPOSITORY / "Dockerfile"
    assert services["agent"]["image"] == services["cleanerd"]["image"] == f"cleanerd:{__version__}"


def test_compose_shares_the_files_of_broker_and_side_car() -> None:
    """Log directory by the same path, the agent's jar, the user; only these and the state are writable."""
    services = _compose()["services"]
    kafka, cleanerd = services["kafka"], services["cleanerd"]
    log_dir = kafka["environment"]["KAFKA_LOG_DIRS"]
    assert cleanerd["environment"]["CLEANERD_CLEANERD_LOG_DIRS"] == log_dir
    assert f"kafka-data:{log_dir}" in set(kafka["volumes"]) & set(cleanerd["volumes"])
    jar = kafka["environment"]["KAFKA_OPTS"].removeprefix("-javaagent:")
    assert jar == services["agent"]["entrypoint"][-1] + "cleanerd-agent.jar"
    assert cleanerd["user"] == dict(_stages()[-1])["USER"]
    assert cleanerd["read_only"] is True
    assert cleanerd["cap_drop"] == ["ALL"]


def test_prometheus_and_grafana_find_it() -> None:
    """The scrape's target is the service; the data source's id is the one in the dashboards."""
    scrape = yaml.safe_load((CONFIG / "prometheus/prometheus.yml").read_text())
    assert scrape["scrape_configs"][0]["static_configs"][0]["targets"] == ["cleanerd:10280"]
    hosts = _compose()["services"]["cleanerd"]["environment"]["CLEANERD_CLEANERD_HTTP_HOSTS"]
    assert hosts == "cleanerd", "the name that Prometheus uses, or it is refused"
    (source,) = yaml.safe_load((CONFIG / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((CONFIG / "grafana/provisioning/dashboards/cleanerd.yml").read_text())["providers"]
    dashboards = provider["options"]["path"]
    assert f"./grafana/cleanerd.json:{dashboards}/cleanerd.json:ro" in _compose()["services"]["grafana"]["volumes"]
    (rules,) = scrape["rule_files"]
    assert fnmatch.fnmatch("/etc/prometheus/cleanerd.rules.yml", rules)
    assert not fnmatch.fnmatch("/etc/prometheus/cleanerd.rules.test.yml", rules)
