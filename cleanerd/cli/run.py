"""``cleanerd run``: the daemon, in the foreground."""

from __future__ import annotations

import asyncio
import signal
from functools import partial

import click
import uvloop

from cleanerd.cli.options import Common, common_options
from cleanerd.daemon.heap import give_back_free_memory, keep_few_heaps
from cleanerd.daemon.http.server import HttpServer
from cleanerd.daemon.service import Service
from cleanerd.daemon.work.hand_over import HandOver
from cleanerd.spark.launch import require_spark


@click.command("run")
@common_options
def run_daemon(common: Common) -> int:
    """Look after the log directories of cleanerd.log.dirs until SIGTERM or SIGINT comes.

    SIGHUP (or cleanerd reload) reads the settings again. Without cleanerd.mode it observes: it works out what
    cleaning would save and writes nothing to a log directory. cleanerd status and cleanerd top show what it does.
    """
    # Until the service listens to it; the default would end the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    keep_few_heaps()
    give_back_free_memory()
    settings = common.load_settings()
    http = partial(
        HttpServer,
        kafka_names=settings.daemon.cleanerd_metrics_kafka_names,
        hosts=settings.daemon.cleanerd_http_hosts,
        partitions_max=settings.daemon.cleanerd_metrics_partitions_max,
    )
    service = Service(settings, common.load_settings, http=http, hand_over=HandOver(require_spark))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        number = runner.run(service.run())
    common.output.note(f"stopped by {signal.Signals(number).name}")
    return 128 + number
