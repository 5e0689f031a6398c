"""List what a release contains of others: a CycloneDX document (SBOM), and the licences of the crates in the kernel.

Rust: the crates that are linked into the kernel, by ``cargo metadata``. Python: what the wheel requires, directly and
Rust: the crates that are linked into the kernel, by ``cargo metadata``. Python: what the wheel requires, directly or

``components.py licences`` prints the licences, ``components.py sbom AGENT_BUILD TIMESTAMP`` the document.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LICENCE_FILES = re.compile(r"(?i)^(licen[cs]e|copying|notice|unlicense)([-.].*)?$")
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)")


def crates() -> list[dict[str, Any]]:
    """The packages of ``cargo metadata`` that are linked into the kernel: no build and no test dependencies."""
    command = [
        "cargo",
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--filter-platform",
        "x86_64-unknown-linux-gnu",
    ]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    waiting = [key for key, package in packages.items() if package["name"] == "cleanerd-kernel-python"]
    linked: set[str] = set()
    while waiting:
        key = waiting.pop()
        if key in linked or any("proc-macro" in target["kind"] for target in packages[key]["targets"]):
            continue
        linked.add(key)
        waiting += [
            dependency["pkg"]
            for dependency in nodes[key]["deps"]
            if any(kind["kind"] is None for kind in dependency["dep_kinds"])
        ]
    others = [packages[key] for key in linked if packages[key]["source"]]
    return sorted(others, key=lambda package: (package["name"], package["version"]))


def distributions(requirements: list[str]) -> list[metadata.Distribution]:
    """The installed distributions behind ``requirements`` and what they require, extras left out."""
    waiting = list(requirements)
    found: dict[str, metadata.Distribution] = {}
    while waiting:
        requirement = waiting.pop()
        name = re.sub(r"[-_.]+", "-", REQUIREMENT.findall(requirement)[0]).lower()
        if name in found or "extra ==" in requirement:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if ";" in requirement:  # for another platform or Python
                continue
            raise
        waiting += found[name].requires or []
    return [found[name] for name in sorted(found)]


def licences() -> str:
    """Name, version, licence and licence texts of each crate; the same text only once."""
    parts = [
        "cleanerd's kernel (_kernel.abi3.so) contains the following crates, each under the licence named with it.\n"
    ]
    first: dict[str, str] = {}
    for package in crates():
        name = f"{package['name']} {package['version']}"
        parts.append(f"{'=' * 80}\n{name}: {package['license']}\n")
        folder = Path(package["manifest_path"]).parent
        # A crate that compiles a C library keeps that library's licence one folder below.
        for file in sorted(each for each in (*folder.glob("*"), *folder.glob("*/*")) if LICENCE_FILES.match(each.name)):
            if not file.is_file():
                continue
            text = file.read_text(encoding="utf-8", errors="replace").strip()
            here = f"{name}, {file.relative_to(folder)}"
            seen = first.setdefault(text, here)
            parts.append(f"{file.relative_to(folder)}:\n\n{text if seen == here else f'the text of {seen}'}\n")
    return "\n".join(parts)


def sbom(version: str, requirements: list[str], agent_build: str, timestamp: str) -> str:
    """The CycloneDX 1.6 document, as JSON."""
    components = [
        _component("library", "cargo", package["name"], package["version"], [_spdx(package["license"])])
        for package in crates()
    ]
    for each in distributions(requirements):
        name = re.sub(r"[-_.]+", "-", each.metadata["Name"]).lower()
        components.append(_component("library", "pypi", name, each.version, _python_licence(each)))
    agent = _component("library", "generic", "cleanerd-agent", version, [_spdx("Apache-2.0")])
    components.append({**agent, "properties": [{"name": "cleanerd:agent-build", "value": agent_build}]})
    subject = _component("application", "pypi", "cleanerd", version, [_spdx("Apache-2.0")])
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": timestamp, "component": subject},
        "components": components,
        "dependencies": [{"ref": subject["bom-ref"], "dependsOn": [each["bom-ref"] for each in components]}],
    }
    number = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(document, sort_keys=True))
    return json.dumps({**document, "serialNumber": f"urn:uuid:{number}"}, indent=2, sort_keys=True) + "\n"


def _component(kind: str, registry: str, name: str, version: str, licenses: list[dict[str, Any]]) -> dict[str, Any]:
    purl = f"pkg:{registry}/{name}@{version}"
    return {"type": kind, "name": name, "version": version, "bom-ref": purl, "purl": purl, "licenses": licenses}


def _spdx(expression: str) -> dict[str, Any]:
    return {"expression": expression.replace("/", " OR ")}


def _python_licence(each: metadata.Distribution) -> list[dict[str, Any]]:
    """Its SPDX expression; else the names of its licences in its own words, which are no SPDX expression."""
    if expression := each.metadata.get("License-Expression"):
        return [_spdx(expression)]
    classifiers = each.metadata.get_all("Classifier") or []
    names = [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License :: OSI Approved :: ")]
    return [{"license": {"name": name}} for name in names or [each.metadata.get("License") or "not stated"]]


def main() -> None:
    """Print what the first argument names."""
    if sys.argv[1] == "licences":
        sys.stdout.write(licences())
    else:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        # Packages and images have the extra "erase".
        requirements = [*project["dependencies"], *project["optional-dependencies"]["erase"]]
        sys.stdout.write(sbom(project["version"], requirements, *sys.argv[2:4]))


if __name__ == "__main__":
    main()
