"""The units: systemd's verdict, and that cleanerd works under their restrictions."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from cleanerd_lab.demo.ports import free_port
from tests.cli.clean_log_dirs import CLEANED, COMPACT, NOW, keys, make
from tests.packaging.sandbox import settings_of
from tests.support.patience import PATIENCE_SECONDS
from tools.wheel import FILES

REPOSITORY = Path(__file__).parents[2]
SYSTEMD = REPOSITORY / "systemd"
UNIT = SYSTEMD / "cleanerd.service"
MOST_EXPOSURE = 2.0
BROKER_UNIT = "[Unit]\nDescription=a broker\n[Service]\nUser=kafka\nTimeoutStartSec=90s\nExecStart=/bin/true\n"


def _copy(tmp_path: Path) -> Path:
    """The units with existing programs and directories, and a broker's unit for the drop-ins."""
    copy = tmp_path / "units"
    shutil.copytree(SYSTEMD, copy)
    (copy / "kafka.service").write_text(BROKER_UNIT)
    for file in copy.rglob("*"):
        if file.is_file():
            text = file.read_text().replace("/opt/cleanerd/bin/cleanerd", "/bin/true")
            file.write_text(text.replace("/var/lib/kafka/data", "/var/lib"))
    return copy


def _verify(unit: Path) -> str:
    """The output of ``systemd-analyze verify``, and its exit code if that is not 0."""
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit.name],
        cwd=unit.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr + (f"exit code {done.returncode}" if done.returncode else "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cleanerd.service", "kafka.service"])
def test_verify_reports_nothing(tmp_path: Path, name: str) -> None:
    """With every drop-in; /bin/true replaces the program."""
    assert _verify(_copy(tmp_path) / name) == ""


@pytest.mark.parametrize("name", ["cleanerd.service", "kafka.service"])
def test_verify_reads_the_drop_ins(tmp_path: Path, name: str) -> None:
    """The test above would find an error in one."""
    copy = _copy(tmp_path)
    (copy / f"{name}.d" / "99-mistake.conf").write_text("[Service]\nExecStartPost=/no/such/program\nNoSuchSetting=1\n")
    assert "NoSuchSetting" in _verify(copy / name)


@pytest.mark.parametrize("drop_in", [None, "log-dirs.conf", "observe-user.conf"])
def test_exposure(tmp_path: Path, drop_in: str | None) -> None:
    """The damage that an attacker could do with the daemon, by systemd's scale: 0 none, 10 everything."""
    unit = tmp_path / "cleanerd.service"
    text = UNIT.read_text()
    if drop_in is not None:
        # As a drop-in is read: after the unit.
        text += (SYSTEMD / "cleanerd.service.d" / drop_in).read_text()
    unit.write_text(text)
    threshold = str(int(MOST_EXPOSURE * 10))
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", f"--threshold={threshold}", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"Overall exposure level for cleanerd.service: ([0-9.]+)", done.stdout)
    assert found is not None, done.stderr
    assert float(found[1]) <= MOST_EXPOSURE
    assert done.returncode == 0


def test_the_daemon_is_the_broker_s_user_and_nothing_more() -> None:
    """A-28, S-14, S-60: the owner of the segments, so that no capability is needed; only its state is writable."""
    settings = settings_of(UNIT)
    assert settings["User"] == settings["Group"] == ["kafka"]
    assert settings["CapabilityBoundingSet"] == settings["AmbientCapabilities"] == [""]
    assert settings["ProtectSystem"] == ["strict"]
    assert "ReadWritePaths" not in settings
    assert settings_of(SYSTEMD / "cleanerd.service.d" / "log-dirs.conf")["ReadWritePaths"]


def test_it_is_restarted_unless_its_settings_are_wrong() -> None:
    """Exit codes 2 and 3 stay the same, however often it is started."""
    settings = settings_of(UNIT)
    assert settings["Type"] == ["notify"]
    assert settings["Restart"] == ["always"]
    assert settings["RestartPreventExitStatus"] == ["2 3"]
    assert settings["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert settings["WatchdogSec"] == ["60s"]


@pytest.mark.slow
def test_no_hook_keeps_the_broker_from_starting(tmp_path: Path) -> None:
    """S-26: neither a failing nor a missing nor a hanging ``apply``; and it ends well below TimeoutStartSec."""
    (line,) = settings_of(SYSTEMD / "kafka.service.d" / "10-cleanerd-apply.conf")["ExecStartPre"]
    found = re.fullmatch(r"-/usr/bin/timeout --kill-after=(\d+)s (\d+)s /opt/cleanerd/bin/cleanerd apply .*", line)
    assert found is not None
    assert int(found[1]) + int(found[2]) < 60
    hook = line.removeprefix("-").replace("/opt/cleanerd/bin/cleanerd", str(tmp_path / "cleanerd"))
    assert subprocess.run(hook.split(), capture_output=True, check=False).returncode == 127
    hook = hook.replace(f"={found[1]}s", "=0.5s").replace(f" {found[2]}s", " 0.3s")
    (tmp_path / "cleanerd").write_text("#!/bin/sh\ntrap '' TERM\nsleep 30 & wait\nsleep 30\n")
    (tmp_path / "cleanerd").chmod(0o755)
    assert subprocess.run(hook.split(), capture_output=True, check=False, timeout=240).returncode in {124, 137, -9}


def test_the_broker_starts_without_the_agent_s_jar() -> None:
    """A-01: a JVM whose -javaagent names a missing jar does not start.

    The option is removed with the jar's directory.
    """
    (line,) = settings_of(SYSTEMD / "kafka.service.d" / "20-cleanerd-agent.conf")["EnvironmentFile"]
    optional, path = line[0], Path(line[1:])
    assert optional == "-"
    (option,) = (SYSTEMD / "kafka.env").read_text().splitlines()
    jar = Path(option.removeprefix("JDK_JAVA_OPTIONS=-javaagent:"))
    assert jar.parent == path.parent
    assert (path.name, jar.name) == ("kafka.env", "cleanerd-agent.jar")


def _java(environment: dict[str, str], tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """A JVM started as Kafka's script does it: KAFKA_OPTS on the command line, the rest in the environment."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA_", "JDK_", "KAFKA_"))}
    return subprocess.run(
        ["sh", "-c", "exec java $KAFKA_OPTS -XshowSettings:properties -version"],
        cwd=tmp_path,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.kafka
def test_the_agent_s_option_replaces_none_of_the_broker_s(tmp_path: Path) -> None:
    """A JAAS file or an exporter in the unit's KAFKA_OPTS survives: an EnvironmentFile would replace the variable."""
    unit = {"KAFKA_OPTS": "-Djava.security.auth.login.config=/etc/kafka/jaas.conf"}
    (line,) = (SYSTEMD / "kafka.env").read_text().splitlines()
    name, _, value = line.partition("=")
    jar = REPOSITORY / "cleanerd" / "agent" / "cleanerd-agent.jar"
    ours = {name: value.replace("/opt/cleanerd/agent/cleanerd-agent.jar", str(jar))}
    done = _java({**unit, **ours}, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "java.security.auth.login.config = /etc/kafka/jaas.conf" in done.stderr
    gone = _java({**unit, name: value.replace("/opt/cleanerd/agent", str(tmp_path))}, tmp_path)
    assert gone.returncode != 0, "otherwise the option was not read, and the agent was missing before, too"


def test_users_and_directories(tmp_path: Path) -> None:
    """The broker's user, one that only observes, and the places of settings and state."""
    (tmp_path / "etc").mkdir()
    for program, conf in (("systemd-sysusers", "sysusers.d"), ("systemd-tmpfiles", "tmpfiles.d")):
        options = ["--create"] if program == "systemd-tmpfiles" else []
        subprocess.run(
            [program, f"--root={tmp_path}", *options, str(SYSTEMD / conf / "cleanerd.conf")],
            capture_output=True,
            check=os.geteuid() == 0,
        )
    if os.geteuid() != 0:
        return
    users = {line.split(":")[0]: line.split(":") for line in (tmp_path / "etc/passwd").read_text().splitlines()}
    groups = {line.split(":")[0]: line.split(":")[3] for line in (tmp_path / "etc/group").read_text().splitlines()}
    assert users.keys() == {"kafka", "cleanerd"}
    assert groups == {"kafka": "cleanerd", "cleanerd": ""}
    assert all(fields[6] == "/usr/sbin/nologin" for fields in users.values())
    state = (tmp_path / "var/lib/cleanerd").stat()
    assert (state.st_uid, stat.S_IMODE(state.st_mode)) == (int(users["kafka"][2]), 0o750)
    assert stat.S_IMODE((tmp_path / "etc/cleanerd").stat().st_mode) == 0o755


def _in_sandbox(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.packaging.sandbox", str(UNIT), *command],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("import os; os.chown('.', 0, 0)", "PermissionError"),
        ("import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)", "PermissionError"),
        ("import os; os.setpriority(os.PRIO_PROCESS, 0, 5)", "PermissionError"),
        ("import os; open(os.open('/proc/self/mem', os.O_RDONLY)).close()", ""),
    ],
    ids=["file owners", "new code", "priorities", "reading"],
)
def test_the_sandbox_restricts(script: str, error: str) -> None:
    """Otherwise the test below would prove nothing."""
    done = _in_sandbox(sys.executable, "-c", script)
    assert (error in done.stderr) if error else done.returncode == 0, done.stderr


@pytest.mark.long
def test_cleaning_uses_nothing_that_the_unit_forbids(tmp_path: Path) -> None:
    """A cleaning with its lock, lease probe, threads and map under the unit's system calls, without a capability."""
    logs = make(tmp_path)
    segment = logs / "orders-0" / f"{0:020d}.log"
    segment.chmod(0o640)
    options = ["--set", f"cleanerd.state.dir={tmp_path / 'state'}", "--set", "cleanerd.disk.reserve=0"]
    more = ["--set", "log.cleaner.threads=2", "--set", "cleanerd.lease.probe=required", *COMPACT]
    command = ["clean", "--yes", "--force", "--quiet", "--now-ms", str(NOW), *more, *options]
    done = _in_sandbox(sys.executable, "-m", "cleanerd", *command, str(logs))
    assert (done.returncode, done.stderr) == (0, "")
    assert keys(logs / "orders-0") == CLEANED
    # The unit's UMask does not apply to the segments.
    assert stat.S_IMODE(segment.stat().st_mode) == 0o640


def test_the_page_about_installing_lists_every_file() -> None:
    """docs/install.md names every shipped file, and the unit has the path at which the wheel installs that page."""
    page = (REPOSITORY / "docs" / "install.md").read_text()
    for file in SYSTEMD.rglob("*"):
        if file.is_file():
            relative = str(file.relative_to(SYSTEMD))
            assert relative in page, relative
    assert f"/opt/cleanerd/{FILES['docs/install.md']}" in settings_of(UNIT)["Documentation"][0]
    for named in re.findall(r"`(config/[\w./-]+)`", page):
        assert (REPOSITORY / named).exists(), named


@pytest.mark.long
def test_the_daemon_uses_nothing_that_the_unit_forbids(tmp_path: Path) -> None:
    """READY and WATCHDOG to the service manager, the page, SIGHUP, SIGTERM: all under the unit's system calls."""
    logs = make(tmp_path)
    state, runtime = tmp_path / "state", tmp_path / "run"
    runtime.mkdir()
    port = free_port()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE_SECONDS)
        environment = {
            **os.environ,
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "2000000",
            "STATE_DIRECTORY": str(state),
            "RUNTIME_DIRECTORY": str(runtime),
            "CLEANERD_CLEANERD_LOG_DIRS": str(logs),
            "CLEANERD_CLEANERD_MODE": "observe",
            "CLEANERD_CLEANERD_HTTP_LISTEN": f"127.0.0.1:{port}",
        }
        daemon = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.packaging.sandbox",
                str(UNIT),
                sys.executable,
                "-m",
                "cleanerd",
                "run",
                *COMPACT,
            ],
            cwd=REPOSITORY,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            _wait_for(manager, "READY=1")
            _wait_for(manager, "WATCHDOG=1")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE_SECONDS) as answer:
                assert answer.status == 200
            assert [path.name for path in runtime.iterdir()] == ["control.sock"]
            daemon.send_signal(signal.SIGHUP)
            _wait_for(manager, "RELOADING=1")
            _wait_for(manager, "READY=1")
        finally:
            daemon.terminate()
            _, message = daemon.communicate(timeout=PATIENCE_SECONDS)
        _wait_for(manager, "STOPPING=1")
    assert daemon.returncode == 128 + signal.SIGTERM
    assert str(daemon.returncode) in settings_of(UNIT)["SuccessExitStatus"][0].split()
    assert "level=error" not in message
    assert keys(logs / "orders-0") != CLEANED  # it observed


def _wait_for(manager: socket.socket, message: str) -> None:
    while message not in manager.recv(4096).decode().splitlines():
        pass
