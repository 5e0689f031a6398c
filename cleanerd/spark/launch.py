"""Starts Spark: runs the same command line again, as the driver of ``spark-submit``.

``cleanerd spark COMMAND ...`` starts ``spark-submit`` in its own process group and waits for it. A signal that ends
cleanerd ends the whole group: ``spark-submit`` alone would leave its Python driver behind. Does not import pyspark, so
that a missing package is reported before anything is started.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final, cast
from urllib.parse import quote_from_bytes, unquote_to_bytes

from cleanerd.errors import ConfigError
from cleanerd.host.memory import TASKS_VARIABLE
from cleanerd.spark.driver_memory import SMALL_HEAP, SMALL_JAVA, Room, local_cores, local_memory_budget
from cleanerd.spark.streams import Forwarder, StderrServer

DRIVER_VARIABLE: Final = "_CLEANERD_SPARK_DRIVER"
"""Set in the driver's environment, so that a command knows that it is the driver. CLEANERD_ is for keys."""

STDERR_VARIABLE: Final = "_CLEANERD_SPARK_STDERR"
"""Where the driver gets our standard error: ``spark-submit`` would mix it into the result on standard output."""

DEFAULT_MASTER: Final = "local[*]"
TASK_FAILURES: Final = 4
"""How often a task is tried: Spark's default on a cluster, which ``local[N]`` does not have."""

OLDEST_JAVA: Final = 17
GRACE_SECONDS: Final = 20.0
NEEDED: Final = ("pyspark", "pyarrow", "pandas")

_EMPTY: Final = "%"
_READABLE: Final = "/=,:@[]*+"
"""Characters that need no quoting besides letters and digits."""

_LOCAL: Final = re.compile(r"local(?:\[(?P<threads>\*|[1-9][0-9]*)(?:,(?P<failures>[1-9][0-9]*))?\])?")
_OTHER: Final = re.compile(r"(?:spark|k8s|mesos)://.+|yarn|local-cluster\[[0-9]+,[0-9]+,[0-9]+\]")

LOG_LEVEL: Final = "spark.log.level"

_DEPLOY_MODE: Final = "spark.submit.deployMode"

_QUIET: Final = {
    LOG_LEVEL: "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Defaults that ``--conf`` can override."""

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_HEAP: Final = "spark.driver.memory"
JAVAS_ENVIRONMENT: Final = frozenset({"JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"})
_SHORT_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options for a short local session, whose driver is its executor."""

_OWN_WORKERS: Final = {"spark.python.daemon.module": "cleanerd.spark.worker_daemon"}
"""Used if the workers run this interpreter, which has the module."""

SAME_WORKERS: Final = "SPARK_SIMPLIFIED_TRACEBACK"
"""A variable that Spark sets for DataFrames' Python workers but not for RDDs'.

Otherwise it has two kinds of workers, each with a process that forks it. If all workers have it there is one kind, and
a job without a shuffle may be an RDD (``jobs.py``).
"""

_MASTERS: Final = "local[*], local[N], spark://HOST:PORT, yarn or k8s://HOST:PORT"
_BY_CONNECT: Final = "Spark Connect runs no driver; call cleanerd.spark.Logs in Python, see docs/spark-source.md"


def is_driver() -> bool:
    """Whether this process was started by :func:`submit`."""
    return DRIVER_VARIABLE in os.environ


def checked_master(master: str) -> str:
    """``master`` for Spark; ``local[N]`` gets as many tries per task as a cluster has.

    Raises:
        ConfigError: it is not a master.
    """
    local = _LOCAL.fullmatch(master)
    if local is not None:
        return f"local[{local['threads'] or 1},{local['failures'] or TASK_FAILURES}]"
    if _OTHER.fullmatch(master) is None:
        raise ConfigError(
            f"{master!r} is not a Spark master",
            where="--master",
            hint=_BY_CONNECT if master.startswith("sc://") else _MASTERS,
        )
    return master


def is_local(master: str) -> bool:
    """Whether tasks run in one process on this machine."""
    return _LOCAL.fullmatch(master) is not None


def require_packages(needed: Sequence[str] = NEEDED) -> None:
    """Check that ``cleanerd[spark]`` is installed.

    Raises:
        ConfigError: a package is missing.
    """
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"not installed: {', '.join(missing)}", hint="pip install '/path/to/cleanerd-VERSION.whl[spark]'"
        )


def require_spark(needed: Sequence[str] = NEEDED) -> Path:
    """The ``spark-submit`` of the installed pyspark, or of ``SPARK_HOME``.

    Raises:
        ConfigError: the packages of ``cleanerd[spark]`` or a Java that can run them are missing.
    """
    require_packages(needed)
    _require_java()
    home = os.environ.get("SPARK_HOME")
    if home is None:
        spec = importlib.util.find_spec("pyspark")
        home = str(Path(str(spec.origin)).parent) if spec is not None else ""
    script = Path(home) / "bin" / "spark-submit"
    if not script.is_file():
        raise ConfigError("has no bin/spark-submit", where=f"SPARK_HOME={home}", hint="unset it, or correct it")
    return script


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java") if home is None else shutil.which("java", path=f"{home}/bin")
    if java is None:
        place = "PATH" if home is None else f"JAVA_HOME={home}"
        raise ConfigError("no java there", where=place, hint=f"install Java {OLDEST_JAVA} or newer, or set JAVA_HOME")
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"cannot be run: {error}", where=java) from error
    found = re.search(r'version "(?:1\.)?([0-9]+)', printed)
    if found is None or int(found[1]) < OLDEST_JAVA:
        version = "no version" if found is None else f"version {found[1]}"
        raise ConfigError(
            f"says {version}; Spark needs Java {OLDEST_JAVA}", where=java, hint="install it and set JAVA_HOME"
        )


def submit(
    script: Path, arguments: Sequence[str], *, master: str, conf: Mapping[str, str], is_short: bool = False
) -> int:
    """Run ``script`` with ``arguments`` as a Spark driver; returns its exit code. ``is_short``: there is little work.

    On this machine Java's heap, and for ``local[*]`` the number of simultaneous tasks, follow from the free memory. If
    the user sets one of them, or Java's options, these values are used unchanged.

    Raises:
        ConfigError: Spark is missing, the master is invalid, or the driver is to run elsewhere.
        MachineError: there is too little memory for a session here.
    """
    where = checked_master(master)
    if conf.get(_DEPLOY_MODE, "client") != "client":
        raise ConfigError(
            "the driver of this command runs here, because it prints its result to your terminal",
            where=f"--conf {_DEPLOY_MODE}={conf[_DEPLOY_MODE]}",
            hint="start spark-submit yourself with cleanerd_driver.py: docs/spark-deploy.md, Cluster mode",
        )
    # Set here, so that a spark-defaults.conf does not send the driver elsewhere.
    script_of_spark = require_spark()
    room = local_memory_budget() if is_local(master) and not _is_heap_configured(conf) else None
    where = _with_tasks(where, room)
    command = [str(script_of_spark), "--master", where, "--deploy-mode", "client", "--name", "cleanerd"]
    for key, value in {**_QUIET, **_local_settings(where, room, is_short=is_short), **conf}.items():
        command += ["--conf", f"{key}={value}"]
    quoted = [quoted_argument(each) for each in arguments]
    with StderrServer() as giver:
        inherited = environment(os.environ, tasks=_local_tasks(where), room=room) | {STDERR_VARIABLE: giver.address}
        process = subprocess.Popen(
            [*command, str(script), *quoted], env=inherited, start_new_session=True, stderr=subprocess.PIPE
        )
        # If the user requests Spark's log, show all of it.
        lines = Forwarder(cast("IO[bytes]", process.stderr), whole=LOG_LEVEL in conf)
        try:
            status = process.wait()
        except BaseException:
            end_group(process)
            raise
        lines.finish()
    return _exit_code(status)


def _with_tasks(master: str, room: Room | None) -> str:
    """``local[*]`` with as many tasks as fit the memory."""
    local = _LOCAL.fullmatch(master)
    if local is None or room is None or local["threads"] != "*" or room.tasks >= local_cores():
        return master
    return f"local[{room.tasks},{local['failures']}]"


def _local_settings(master: str, room: Room | None, *, is_short: bool) -> dict[str, str]:
    """Settings for a local session, unless the user has set them."""
    if not is_local(master):
        return {}
    settings = {f"spark.executorEnv.{SAME_WORKERS}": "1"}
    if "PYSPARK_PYTHON" not in os.environ:
        settings.update(_OWN_WORKERS)
    is_small = room is not None and room.is_small
    if is_small:
        settings[_HEAP] = SMALL_HEAP
    if (is_small or is_short) and not _are_java_options_configured():
        settings[_JAVA_OPTIONS] = SMALL_JAVA if is_small else _SHORT_JAVA
    return settings


def _is_heap_configured(conf: Mapping[str, str]) -> bool:
    return _HEAP in conf or "SPARK_DRIVER_MEMORY" in os.environ or _is_default(_HEAP)


def _are_java_options_configured() -> bool:
    """Whether the user configured Java's options: with two collectors it would not start."""
    return not JAVAS_ENVIRONMENT.isdisjoint(os.environ) or _is_default(_JAVA_OPTIONS)


def _is_default(key: str) -> bool:
    """Whether ``spark-defaults.conf`` has it."""
    home = os.environ.get("SPARK_HOME", "")
    place = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else "")
    try:
        return bool(place) and key in Path(place, "spark-defaults.conf").read_text(errors="replace")
    except OSError:
        return False


def quoted_argument(argument: str) -> str:
    """``argument`` in ASCII, without characters that ``spark-submit`` changes.

    Under the C locale Java reads other characters as question marks, and its scripts drop empty arguments.
    """
    return quote_from_bytes(os.fsencode(argument), safe=_READABLE) or _EMPTY


def unquoted_argument(text: str) -> str:
    """The reverse of :func:`quoted_argument`."""
    return "" if text == _EMPTY else os.fsdecode(unquote_to_bytes(text))


def _local_tasks(master: str) -> int | None:
    """The number of parallel tasks in one process on this machine; None: they run elsewhere."""
    local = _LOCAL.fullmatch(master)
    if local is None:
        return None
    threads = local["threads"] or "1"
    return local_cores() if threads == "*" else int(threads)


def environment(inherited: Mapping[str, str], *, tasks: int | None, room: Room | None = None) -> dict[str, str]:
    """The driver's environment: executors run this interpreter unless the environment names another one.

    ``tasks``: number of parallel tasks on this machine; None: elsewhere. The workers inherit it.
    """
    result = {
        "PYSPARK_PYTHON": sys.executable,
        **inherited,
        DRIVER_VARIABLE: "1",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "OPENBLAS_NUM_THREADS": "1",
    }
    result.pop(TASKS_VARIABLE, None)
    if tasks is not None:
        result[TASKS_VARIABLE] = str(tasks)
        # Spark would not start if the host's own name does not resolve.
        result.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if room is not None and room.is_small:
        # Otherwise each of Java's threads would have an arena and never return its memory.
        result.setdefault("MALLOC_ARENA_MAX", "2")
    return result


def end_group(process: subprocess.Popen[bytes], grace_seconds: float = GRACE_SECONDS) -> None:
    """Stop a process group: first with SIGTERM, so that it can clean up, and after ``grace_seconds`` with SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + grace_seconds
        while time.monotonic() < deadline:
            if process.poll() is not None and not _lives(process.pid):
                return
            time.sleep(0.05)


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _exit_code(status: int) -> int:
    return 128 - status if status < 0 else status
