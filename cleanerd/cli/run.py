"""``cleanerd run``: the daemon, in the foreground."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from functools import partial
from typing import TYPE_CHECKING

import uvloop

from cleanerd.cli.output import lost_lines
from cleanerd.daemon.heap import limit_malloc_arenas, start_memory_trimming
from cleanerd.daemon.http.server import HttpServer
from cleanerd.daemon.service import Service
from cleanerd.daemon.work.spark_offload import SparkOffload
from cleanerd.errors import ConfigError
from cleanerd.spark.launch import require_spark

if TYPE_CHECKING:
    from cleanerd.cli.options import Common
    from cleanerd.config.load import Settings


def run_daemon(common: Common) -> int:
    """Run ``cleanerd run``; its options are in ``reading_commands.py``."""
    # Until the service handles it; the default would end the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    limit_malloc_arenas()
    start_memory_trimming()
    settings = common.load_settings()
    http = partial(
        HttpServer,
        kafka_names=settings.daemon.cleanerd_metrics_kafka_names,
        hosts=settings.daemon.cleanerd_http_hosts,
        partitions_max=settings.daemon.cleanerd_metrics_partitions_max,
    )
    service = Service(
        settings,
        partial(reread, common),
        http=http,
        spark_offload=SparkOffload(require_spark),
        more_warnings=lost_lines,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        number = runner.run(service.run())
    return 128 + number


def reread(common: Common) -> Settings:
    """The settings, read again for a reload.

    Raises:
        ConfigError: they are invalid; or one of the files is a pipe, which is empty by now or blocks.
    """
    for path in common.config_paths:
        try:
            mode = os.stat(path).st_mode
        except OSError:
            continue  # reading it reports the error
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise ConfigError(
                "is not a file that can be read again",
                where=str(path),
                hint="restart the daemon, with a file in its place",
            )
    return common.load_settings()
