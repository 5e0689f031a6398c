"""``cleanerd spark clean``: stages as ``cleanerd stage`` does, on Spark's executors; ``cleanerd apply`` swaps in.

With ``--output`` it writes a cleaned copy elsewhere instead, and nothing beside the logs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from cleanerd.cli.cleaning_options import cleaning_options
from cleanerd.cli.selecting import archives_argument, output_option
from cleanerd.cli.spark import spark_command
from cleanerd.cli.stage import one_by_one, stage_all

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cleanerd.cli.options import Common


def _check(given: Mapping[str, Any]) -> None:
    if given["output"] is None:
        return
    for name, flag in (("shards", "--shards"), ("kept", "--keep-replaced")):
        if given[name] is not None:
            raise click.UsageError(f"{flag} cannot be used with --output, which replaces no segment")
    from cleanerd.spark.launch import require_packages  # noqa: PLC0415

    require_packages()
    from cleanerd.spark.archive.target import check_new, require_no_overlap, target_of  # noqa: PLC0415 - pyarrow

    require_no_overlap(given["output"], given["log_dirs"])
    check_new(target_of(given["output"]))


@click.command("clean")
@archives_argument
@output_option("Write a cleaned copy of the archives LOG_DIR to this new directory or URL (s3://BUCKET/PREFIX).")
@cleaning_options
@click.option("--shards", type=click.IntRange(1, 4096), metavar="N", help="Cut the keys into N shards or more.")
@spark_command(alone=lambda given: given["shards"] is None, check=_check)
def clean(common: Common, log_dirs: tuple[Path, ...], *, output: Path | None, shards: int | None, **given: Any) -> int:
    """Stage cleanings of the compacted partitions with Spark, for cleanerd apply; or clean archives into a copy.

    The executors read and write the log directories, so driver and executors must see them under one path. The staged
    files are those of cleanerd stage, byte for byte.

    With --output, LOG_DIR can also be a URL, and is not changed. Each partition is copied to an executor's disk,
    cleaned there as by cleanerd clean, and written to the output. The manifest cleanerd-archive.json is written last;
    without it, the output is incomplete. It names the partitions that could not be cleaned and are left out.
    """
    from cleanerd.spark.session import spark_session  # noqa: PLC0415 - pyarrow

    with spark_session("cleanerd spark clean") as session:
        if output is not None:
            from cleanerd.cli.spark_archive import archive_all  # noqa: PLC0415

            return archive_all(common, session, log_dirs, output, **given)
        from cleanerd.spark.clean import SparkStager, stage_locally  # noqa: PLC0415

        stager_of = one_by_one(stage_locally) if session is None else partial(SparkStager.of, session, shards)
        return stage_all(common, log_dirs, stager_of, **given)
