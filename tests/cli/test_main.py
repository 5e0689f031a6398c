"""The command line's frame: commands on demand, exit codes, signals, channels."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cleanerd import __version__
from cleanerd.broker.agent_jar import build_of_jar
from cleanerd.cli import main as main_module
from cleanerd.cli.main import COMMANDS, run
from tests.support.patience import PATIENCE_SECONDS
from tests.support.root import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def test_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = {command: (f"tests.cli.commands:{command}", "") for command in ("end", "say", "ask", "settings")}
    # Commands that end in every way; no real one does so on demand.
    monkeypatch.setattr(main_module, "COMMANDS", commands)


def python(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_help_lists_the_commands_without_loading_them() -> None:
    """Fast: neither NumPy, pydantic, rich nor the kernel are imported for --help."""
    code = (
        "import sys; from cleanerd.cli.main import run; code = run(['--help']);"
        "heavy = {'numpy', 'pydantic', 'rich', 'structlog', 'cleanerd._kernel'} & set(sys.modules);"
        "print(code, sorted(heavy))"
    )
    done = python("-c", code)
    assert done.stdout.rstrip().endswith("0 []")
    for command, (_, text) in COMMANDS.items():
        assert f"  {command}" in done.stdout
        assert text in done.stdout


@pytest.mark.long
def test_no_commands_help_loads_the_modules_of_its_work() -> None:
    """``clean --help`` is as fast as ``--help``: modules for logs, settings or a cluster are loaded when it runs.

    Except the commands of the lab and of Spark, which start JVMs.
    """
    lines = [[command] for command in COMMANDS if command not in {"bench", "demo"}]
    lines += [["config", command] for command in ("show", "check", "generate")]
    lines += [["agent", command] for command in ("path", "attach", "info")]
    code = (
        "import sys, contextlib, io; from cleanerd.cli.main import run\n"
        "heavy = {'numpy', 'pydantic', 'rich', 'structlog', 'asyncio', 'kafka', 'confluent_kafka'}\n"
        f"for line in {lines!r}:\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as output:\n"
        "        code = run([*line, '--help'])\n"
        "    print(*line, code, 'Usage:' in output.getvalue(), sorted(heavy & set(sys.modules)))"
    )
    done = python("-c", code)
    assert done.stdout.splitlines() == [f"{' '.join(line)} 0 True []" for line in lines], done.stderr


@pytest.mark.long
def test_commands_that_query_the_daemon_import_neither_numpy_nor_asyncio(tmp_path: Path) -> None:
    """``status`` and similar commands start often: they load settings and output, and nothing for cleanings."""
    code = (
        "import sys; from cleanerd.cli.main import run;"
        f"code = run(['status', '--no-config', '--set', 'cleanerd.state.dir={tmp_path}']);"
        "heavy = {'numpy', 'asyncio', 'structlog', 'cleanerd._kernel'} & set(sys.modules);"
        "print(code, sorted(heavy))"
    )
    assert python("-c", code).stdout.rstrip().endswith("4 []")


@pytest.mark.slow
def test_a_cleaning_does_not_load_numpys_masked_arrays(tmp_path: Path) -> None:
    """``numpy.ma``, which ``np.unique`` and ``np.union1d`` load at their first call, costs more than a small log."""
    code = (
        "import sys; from pathlib import Path; from cleanerd.cli.main import run\n"
        "from cleanerd_lab.bench.generate import PARTITION, SHAPES, make_log\n"
        "from cleanerd_lab.bench.whole import clean_arguments\n"
        "root = Path(sys.argv[1])\n"
        "log = make_log(root / 'log', SHAPES[0], unpacked_bytes=1 << 18, segment_bytes=1 << 16)\n"
        "settings = [f'topics.{PARTITION.topic}.segment.bytes=65536']\n"
        "code = run(clean_arguments(log.log_dir, str(root / 'state'), settings))\n"
        "print(code, 'numpy.ma' in sys.modules)"
    )
    done = python("-c", code, str(tmp_path))
    assert done.stdout.rstrip().endswith("0 False"), done.stderr
    assert '"outcome": "cleaned"' in done.stdout


def test_the_commands_are_those_of_the_contract() -> None:
    """Exactly those of the command line's contract."""
    assert set(COMMANDS) == {
        "plan", "clean", "stage", "apply", "undo", "explain", "verify", "audit", "inspect", "doctor", "config", "demo",
        "bench", "delegate", "undelegate", "agent", "run", "status", "top", "trigger", "pause", "resume",
        "retry", "reload", "spark", "cluster", "move-aside", "adopt-state", "ignore-replica", "erase",
    }  # fmt: skip


@pytest.mark.parametrize("group", ["agent", "cluster", "config", "erase", "spark"])
def test_groups_call_them_commands_too(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One term for one thing, and each with a complete line."""
    assert run([group, "--help"]) == 0
    listed = capsys.readouterr().out.split("\nCommands:\n")[1]
    assert "..." not in listed
    assert all(line.endswith(".") for line in listed.splitlines() if line)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """Version, commit and agent, on one line; a clone has no stored commit."""
    assert run(["--version"]) == 0
    agent = build_of_jar() or "missing"
    assert capsys.readouterr().out == f"cleanerd, version {__version__} (commit not recorded, agent {agent})\n"


def test_python_m_cleanerd_is_the_same_command() -> None:
    assert python("-m", "cleanerd", "--version").stdout.startswith(f"cleanerd, version {__version__} (")


def test_a_misspelt_command_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plna"]) == 2
    captured = capsys.readouterr()
    assert "did you mean plan?" in captured.err
    assert captured.out == ""


STREAMS = ("stdin", "stdout", "stderr")
CODES = [
    ("ok", 0, ""),
    ("config", 3, "cleanerd: a.toml:3: bad key (did you mean good.key?)\n"),
    ("refused", 4, "cleanerd: /log: a broker holds the lock\n"),
    ("corruption", 5, "cleanerd: /log/0.log at byte 61: a batch of 3 bytes\n"),
    ("error", 1, "cleanerd: no space\n"),
    ("os", 1, "cleanerd: /log/x: No such file or directory\n"),
    (
        "unexpected",
        1,
        "cleanerd: unexpected error: ZeroDivisionError: one by nothing (-v shows where; please report it)\n",
    ),
    ("abort", 1, "cleanerd: aborted\n"),
    ("pipe", 141, ""),
    ("interrupt", 130, ""),
    ("SIGINT", 130, "cleanerd: stopped by SIGINT\n"),
    ("SIGTERM", 143, "cleanerd: stopped by SIGTERM\n"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("how", "code", "message"), CODES)
def test_exit_codes_and_the_one_line(how: str, code: int, message: str) -> None:
    """Exit codes; one clear line on stderr, nothing on stdout. In a new process, as users see it."""
    done = python("-m", "tests.cli.commands", "end", how)
    assert (done.returncode, done.stderr, done.stdout) == (code, message, "")


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("config", {"message": "bad key", "where": "a.toml:3", "hint": "did you mean good.key?", "exit_code": 3}),
        ("usage", {"message": "LOG_DIR is missing", "where": None, "hint": None, "exit_code": 2}),
        ("os", {"message": "/log/x: No such file or directory", "where": None, "hint": None, "exit_code": 1}),
        ("abort", {"message": "aborted", "where": None, "hint": None, "exit_code": 1}),
    ],
)
def test_an_error_is_json_too(
    test_commands: None, capsys: pytest.CaptureFixture[str], how: str, error: dict[str, object]
) -> None:
    """One object on stdout with the schema, for clients that read nothing else; the line on stderr stays."""
    assert run(["end", how, "--json"]) == error["exit_code"]
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"schema": 1, "error": error}
    assert str(error["message"]) in captured.err


def test_usage_errors_are_2(test_commands: None, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["end", "usage"],
        ["end"],
        ["end", "ok", "--nonsense"],
        ["say", "-v", "--quiet"],
        ["say", "--set", "x"],
    ):
        assert run(arguments) == 2, arguments
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("how", ["ok", "exit"])
def test_a_command_chooses_its_code_by_return_or_exit(test_commands: None, how: str) -> None:
    """``plan --exit-code`` returns 10."""
    assert run(["end", how, "--code", "10"]) == 10


@pytest.mark.long
def test_the_traceback_needs_v() -> None:
    quiet, loud = (python("-m", "tests.cli.commands", "end", "unexpected", *extra) for extra in ((), ("-v",)))
    assert "Traceback" not in quiet.stderr
    assert "Traceback" in loud.stderr
    assert quiet.returncode == loud.returncode == 1


def test_signal_handlers_are_put_back(test_commands: None) -> None:
    import signal  # noqa: PLC0415

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    run(["end", "SIGTERM"])
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_full_disk_on_stdout_is_a_failure() -> None:
    """A result that was not written is not a success."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cleanerd", "config", "generate"],
            cwd=REPOSITORY, stdout=full, stderr=subprocess.PIPE,
            text=True, timeout=PATIENCE_SECONDS, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "standard output: the result cannot be printed: No space left on device" in " ".join(done.stderr.split())


@pytest.mark.long
@pytest.mark.parametrize("stderr", ["a full disk", "a reader that went away"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [("status --no-config --set cleanerd.state.dir=/nowhere", 4), ("nope", 2), ("config generate --no-config", 0)],
)
def test_an_exit_code_is_the_same_without_a_usable_stderr(stderr: str, arguments: str, code: int) -> None:
    """4 and 2 became 1, with a traceback on the closed stream."""
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "w") as full, os.fdopen(writer, "w") as broken:
        done = subprocess.run(
            [sys.executable, "-m", "cleanerd", *arguments.split()], cwd=REPOSITORY, stdout=subprocess.PIPE,
            stderr=full if stderr == "a full disk" else broken, timeout=PATIENCE_SECONDS, check=False,
        )  # fmt: skip
    assert done.returncode == code
    assert bool(done.stdout) == (code == 0)


@pytest.mark.long
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_streams(tmp_path: Path, closed: tuple[int, ...]) -> None:
    """``>&-``: no opened file gets the number of a stream, or any output would go into it."""
    script = (
        "import os, sys\n"
        f"[os.close(number) for number in {closed}]\n"
        f"{''.join(f'sys.{name} = None; ' for number, name in enumerate(STREAMS) if number in closed)}\n"
        "from cleanerd.cli.main import have_streams\n"
        "have_streams()\n"
        f"number = os.open({str(tmp_path / 'segment')!r}, os.O_CREAT | os.O_RDWR)\n"
        "os.write(1, b'out'), os.write(2, b'err'), print('more', flush=True), print('more', file=sys.stderr)\n"
        "sys.exit(0 if number > 2 and sys.stdin is not None else 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "segment").read_bytes() == b""
    assert bool(done.stdout) == (1 not in closed)
    assert bool(done.stderr) == (2 not in closed)
    command = f"{sys.executable} -m cleanerd --version {' '.join(f'{number}>&-' for number in closed)}"
    shell = subprocess.run(["sh", "-c", command], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (shell.returncode, shell.stderr) == (0, "")
    assert bool(shell.stdout) == (1 not in closed)


@pytest.mark.parametrize("arguments", [["config", "generate"], ["--help"]])
def test_a_reader_that_closes_the_pipe_is_not_an_error(arguments: list[str]) -> None:
    """``cleanerd ... | head``: no message, no traceback of the interpreter's last flush."""
    code = f"import sys; from cleanerd.cli.main import run; sys.stdin.read(); sys.exit(run({arguments}))"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # before the command writes: it waits for the end of its input
        process.stdin.close()
        assert process.wait(PATIENCE_SECONDS) == 141
        assert process.stderr.read() == b""


def test_channels_without_a_terminal() -> None:
    """Stdout has the result only; no bars, colours or control characters."""
    done = python("-m", "tests.cli.commands", "say")
    assert done.stdout == "TOPIC      BYTES\norders         5\na\\x1b[2Jb  1,000\n"
    assert "\x1b" not in done.stderr
    assert 'level=info event="an info line" partition=orders-0' in done.stderr
    assert "a debug line" not in done.stderr
    assert "a note\nwarning: a warning\n" in done.stderr


@pytest.mark.long
def test_quiet_and_verbose() -> None:
    quiet = python("-m", "tests.cli.commands", "say", "--quiet").stderr
    assert "an info line" not in quiet
    assert "a note" not in quiet
    assert "an error line" in quiet
    assert "warning: a warning" in quiet
    assert "a debug line" in python("-m", "tests.cli.commands", "say", "-v").stderr


def test_json_is_one_object_with_the_schema_first() -> None:
    document = json.loads(python("-m", "tests.cli.commands", "say", "--json").stdout)
    assert document == {"schema": 1, "partitions": ["a", "b"]}
    assert next(iter(document)) == "schema"


@pytest.mark.long
def test_confirm_without_a_terminal_is_refused_unless_yes() -> None:
    """Without a terminal ``clean`` refuses without --yes."""
    requested = subprocess.run(
        [sys.executable, "-m", "tests.cli.commands", "ask"], cwd=REPOSITORY, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip
    assert requested.returncode == 4
    assert "--yes" in requested.stderr
    assert python("-m", "tests.cli.commands", "ask", "--yes").stdout == "answer True\n"


@pytest.mark.long
@pytest.mark.parametrize(("typed", "answer"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False)])
def test_confirm_on_a_terminal(typed: str, answer: bool) -> None:
    main, terminal = pty.openpty()
    os.write(main, typed.encode())
    done = subprocess.run(
        [sys.executable, "-m", "tests.cli.commands", "ask"], cwd=REPOSITORY, stdin=terminal, capture_output=True,
        text=True, timeout=PATIENCE_SECONDS, check=True,
    )  # fmt: skip
    os.close(main)
    os.close(terminal)
    assert done.stdout == f"answer {answer}\n"
    assert "Clean? [y/N]" in done.stderr


def test_settings_reach_the_command(test_commands: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.toml"
    file.write_text('"log.segment.bytes" = "1MiB"')
    assert run(["settings", "--config", str(file)]) == 0
    assert run(["settings", "--config", str(file), "--set", "log.segment.bytes=2MiB"]) == 0
    assert capsys.readouterr().out == f"1048576 file {file}\n2097152 --set\n"
