"""``cleanerd doctor``: its findings about the machine, its limits and its file systems."""

from __future__ import annotations

import json
import os
import resource
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from cleanerd.doctor.check import check_host
from cleanerd.doctor.findings import CheckResult, CheckResults
from cleanerd.doctor.host import check_client_config, check_file_system, check_limits, check_map_dir
from cleanerd.fsio.mounts import file_system_of
from tests.cleaner.driver import scratch
from tests.support.certificates import PASSWORD, make_certificates
from tests.support.root import as_other_user, needs_root

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_limits() -> None:
    """Threads count, not partitions; a missing limit is not a problem."""

    def found(threads: int, soft: int, hard: int) -> CheckResult:
        all_found = CheckResults()
        check_limits(all_found, threads, (soft, hard))
        return all_found.all[0]

    assert found(1, 1024, 1024).level == "ok"
    assert found(1000, resource.RLIM_INFINITY, resource.RLIM_INFINITY).level == "ok"
    assert (found(1000, 1024, 1 << 20).level, "ulimit" in found(1000, 1024, 1 << 20).fix) == ("problem", True)
    assert "LimitNOFILE" in found(1000, 1024, 1024).fix


@pytest.mark.parametrize(
    ("kind", "level"),
    [("ext4", "ok"), ("xfs", "ok"), ("tmpfs", "note"), ("nfs4", "warning"), ("fuse.sshfs", "warning")],
)
def test_file_systems(tmp_path: Path, kind: str, level: str) -> None:
    """File systems without reliable leases or fsync are reported; the device decides, whatever the mount's name is."""
    device = os.stat(tmp_path).st_dev
    lines = [
        "21 1 0:99999 / /proc rw shared:1 - proc proc rw",
        f"22 1 {os.major(device)}:{os.minor(device)} / /strange\\040place rw,noatime shared:2 master:1 - {kind} src rw",
    ]
    assert file_system_of(tmp_path, "\n".join(lines)) == kind
    assert file_system_of(tmp_path, lines[0]) is None
    found = CheckResults()
    check_file_system(found, tmp_path, lambda _path: kind)
    assert found.all[0].level == level


def test_the_directory_of_on_disk_offset_maps(tmp_path: Path) -> None:
    """U-43: any problem there is a warning, as passes replace the file; a missing one is reported with the settings."""
    place, logs = tmp_path / "maps", tmp_path / "logs"
    place.mkdir()
    (tmp_path / "file").touch()

    def found(where: Path | None, kind: str, *log_dirs: Path, writable: bool = True) -> list[tuple[str, str]]:
        all_found = CheckResults()
        access = (lambda *_, **__: False) if not writable else os.access
        check_map_dir(all_found, where, log_dirs, kind_of=lambda _path: kind, access=access)
        return [(each.level, each.what) for each in all_found.all]

    assert found(None, "ext4") == found(tmp_path / "missing", "ext4") == []
    [(level, what)] = found(place, "xfs", logs)
    assert (level, what.endswith(" free")) == ("ok", True)
    logs.mkdir()
    wrong = {
        "is not a directory": found(tmp_path / "file", "ext4"),
        "is in memory": found(place, "tmpfs"),
        "is not a local disk": found(place, "nfs4"),
        f"on the disk of {logs}": found(place, "ext4", logs),
    }
    wrong["not writable"] = found(place, "ext4", writable=False)
    for part, ((reported, message),) in wrong.items():
        assert (reported, part in message) == ("warning", True), message


@pytest.mark.long
@pytest.mark.parametrize("kind", ["PEM", "JKS", "PKCS12"])
def test_certificates_that_have_expired(tmp_path: Path, kind: str) -> None:
    """A readable certificate that no broker accepts is not fine."""
    made = make_certificates(tmp_path / "made")
    trust, store = {
        "PEM": ("ca.pem", "client.pem"), "JKS": ("trust.jks", "client.jks"), "PKCS12": ("trust.p12", "client.p12"),
    }[kind]  # fmt: skip
    made.path(store).chmod(0o600)
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SSL\nssl.truststore.type={kind}\nssl.truststore.location={made.path(trust)}\n"
        f"ssl.keystore.type={kind}\nssl.keystore.location={made.path(store)}\n"
        + "".join(f"ssl.{each}.password={PASSWORD}\n" for each in ("truststore", "keystore") if kind != "PEM")
    )
    file.chmod(0o600)

    def message(now: Callable[[], float] = time.time) -> list[tuple[str, str]]:
        findings = CheckResults()
        check_client_config(findings, file, now)
        return [(each.level, each.what) for each in findings.all]

    assert message() == [("ok", "can be used: SSL")]
    now = time.time()
    around = {datetime.fromtimestamp(now + 30 * 86_400 + by, UTC).strftime("%Y-%m-%d") for by in (-60, 0)}
    (own, trusted) = message(lambda: now + 31 * 86_400)
    assert own in {("warning", f"the certificate in its key store expired on {day}") for day in around}
    assert trusted in {("warning", f"the last authority in its trust store expired on {day}") for day in around}


def test_an_open_file_has_a_file_system_too(tmp_path: Path) -> None:
    """A file without a name has no path to check."""
    with (tmp_path / "file").open("w") as file:
        assert file_system_of(file.fileno()) == file_system_of(tmp_path)


def problems(found: list[CheckResult], check: str) -> list[tuple[str, str, int]]:
    return [(each.where, each.what, each.exit_code) for each in found if (each.check, each.level) == (check, "problem")]


def test_a_broken_file_of_the_broker_is_a_finding(tmp_path: Path) -> None:
    """It ended ``doctor`` with exit code 5, without the results of the other checks."""
    properties = tmp_path / "server.properties"
    properties.write_text("log.dirs=\\uZZZZ\n")
    found = check_host([], [], [f"cleanerd.broker.properties={properties}", f"cleanerd.state.dir={tmp_path / 'state'}"])
    reported = (str(properties), "line 1: \\u needs four hexadecimal digits", 3)
    assert problems(found, "log directory") == [reported]
    assert "open files" in {each.check for each in found}


def test_settings_that_contradict_are_found(tmp_path: Path) -> None:
    """As ``config check`` finds them; doctor reported valid settings."""
    lags = ["topics.o.min.compaction.lag.ms=2d", "topics.o.max.compaction.lag.ms=1d"]
    found = check_host([], [], [*lags, f"cleanerd.state.dir={tmp_path / 'state'}", f"cleanerd.log.dirs={tmp_path}"])
    (problem,) = problems(found, "settings")
    assert problem[1] == "min.compaction.lag.ms of topic o is 172800000, above max.compaction.lag.ms 86400000 (--set)"


@needs_root
def test_files_that_are_closed_to_us_are_findings() -> None:
    """``Path.exists`` raises for them: the first one ended ``doctor``."""
    with scratch() as root:
        closed = root / "closed"
        (closed / "map").mkdir(parents=True)
        (closed / "client.properties").write_text("security.protocol=PLAINTEXT\n")
        closed.chmod(0o700)
        settings = [f"cleanerd.command.config={closed}/client.properties", f"cleanerd.map.dir={closed}/map"]
        settings += [f"cleanerd.state.dir={root}/state", f"cleanerd.log.dirs={root}/logs"]
        reported = as_other_user(lambda: json.dumps([each.to_json() for each in check_host([], [], settings)]))
        by_check = {each["check"]: each for each in json.loads(reported)}
        assert "Permission denied" in by_check["client properties"]["what"]
        assert by_check["keys on disk"]["level"] == "warning"
        assert "cannot be read by this user" in by_check["keys on disk"]["what"]
