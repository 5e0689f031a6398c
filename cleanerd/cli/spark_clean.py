"""``cleanerd spark clean``: what ``cleanerd stage`` does, over Spark's executors; ``cleanerd apply`` swaps it in."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from cleanerd.cli.cleaning_options import cleaning_options
from cleanerd.cli.selecting import log_dirs_argument
from cleanerd.cli.spark import spark_verb
from cleanerd.cli.stage import stage_all

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cli.options import Common


@click.command("clean")
@log_dirs_argument()
@cleaning_options
@click.option("--shards", type=click.IntRange(1, 4096), metavar="N", help="Cut the keys into N shards or more.")
@spark_verb(alone=lambda given: given["shards"] is None)
def clean(common: Common, log_dirs: tuple[Path, ...], *, shards: int | None, **given: Any) -> int:
    """Write the new segments of the compacted partitions beside the old ones, for cleanerd apply.

    The log directories are read and written by the executors: they must lie on storage that driver and executors see
    under one path. What is staged is what cleanerd stage would stage, byte for byte.
    """
    from cleanerd.spark.clean import spark_stage_partition, stage_alone  # noqa: PLC0415 - pyarrow
    from cleanerd.spark.session import spark_session  # noqa: PLC0415

    with spark_session("cleanerd spark clean") as session:
        stager = stage_alone if session is None else partial(spark_stage_partition, session, shards=shards)
        return stage_all(common, log_dirs, stager, **given)
