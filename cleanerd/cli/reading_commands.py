"""The command lines of commands that read files, and of the daemon. Modules of their names implement them.

This module loads neither NumPy nor pydantic: see ``cleaning_commands.py``.
"""

from __future__ import annotations

from typing import Final

import click

from cleanerd.cli.key_options import search_options
from cleanerd.cli.lazy_command import lazy_command
from cleanerd.cli.options import common_options, now_option
from cleanerd.cli.selecting import (
    ExistingPath,
    each_once,
    existing_dirs,
    log_dirs_argument,
    partition_argument,
    partition_option,
    strategy_option,
)
from cleanerd.inspection.kind_names import KIND_NAMES

INSPECT_LIMIT: Final = 1000
VERIFY_LIMIT: Final = 100


@click.command("run")
@common_options
@lazy_command("cleanerd.cli.run:run_daemon")
def run_daemon() -> None:
    """Run the daemon: keep the log directories of cleanerd.log.dirs clean until SIGTERM or SIGINT.

    SIGHUP (or cleanerd reload) reads the settings again. Without cleanerd.mode it observes: it computes what cleaning
    would save and writes nothing to a log directory. cleanerd status and cleanerd top show what it does.
    """


@click.command("inspect")
@common_options
@click.argument("path", metavar="FILE_OR_DIR", type=ExistingPath())
@click.option("--batches", "rows", flag_value="batches", default=True, help="Segments: a row per batch (the default).")
@click.option("--records", "rows", flag_value="records", help="Segments: a row per record.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=INSPECT_LIMIT,
    show_default=True,
    metavar="N",
    help="At most N rows per table; 0 for all.",
)
@click.option("--from-offset", type=click.IntRange(min=0), metavar="OFFSET", help="Show nothing below this offset.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="OFFSET", help="Show nothing above this offset.")
@strategy_option("For a partition: show the versions that timestamp or header:NAME gives its records. Reads all.")
@click.option(
    "--as",
    "kind",
    type=click.Choice(KIND_NAMES),
    metavar="KIND",
    help=f"The kind of file, if its name does not show it: {', '.join(KIND_NAMES)}.",
)
@lazy_command("cleanerd.cli.inspect:inspect")
def inspect() -> None:
    """Decode any file that a broker keeps: segments, indexes, snapshots, checkpoints, KRaft metadata.

    For a partition's directory it shows the segments, for a log directory the partitions and topics. A damaged file is
    decoded up to the damage; the error names the byte (exit code 5). Of the cluster's metadata, it shows only the
    settings about logs and their cleaning.
    """


@click.command("verify")
@common_options
@click.argument(
    "paths",
    metavar="[FILE_OR_DIR...]",
    nargs=-1,
    type=ExistingPath(),
    callback=lambda _context, _argument, paths: each_once(paths),
)
@partition_option
@click.option(
    "--clean-below",
    type=click.IntRange(min=0),
    metavar="OFFSET",
    help="The log is clean below this offset. Default: the one in cleaner-offset-checkpoint.",
)
@click.option(
    "--against",
    type=ExistingPath(file_okay=False),
    metavar="DIR",
    help="Compare with a copy from before the cleaning, or with the replaced segments: find lost and altered records.",
)
@click.option("--many-cleanings", is_flag=True, help="With --against: the log was cleaned more than once since.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=VERIFY_LIMIT,
    show_default=True,
    metavar="N",
    help="At most N findings per kind and partition; 0 for all.",
)
@now_option
@lazy_command("cleanerd.cli.verify:verify")
def verify() -> None:
    """Prove that segments, partitions or log directories are consistent.

    Checks the structure of every record, checksums, the order of offsets, and lookups in index files. Checks
    transaction indexes, producer snapshots, leader epochs, checkpoints and leftover files. The clean section may
    have only one record per key. Exit code 5 if there is an error, 1 if partitions could not be read. Use
    --partition with log directories. Beside a running broker, the newest bytes may still change.
    """


@click.command("audit")
@common_options
@partition_argument
@existing_dirs("log_dirs", "[LOG_DIR...]", required=False)
@search_options
@lazy_command("cleanerd.cli.audit:audit")
def audit() -> None:
    """Find every record of an erasure request: by key, key prefix, or bytes in its value.

    A topic or a pattern such as 'orders-*' means all its partitions, '*' all topics. Name all directories of log.dirs,
    or none if the settings name them. A record is found if it matches one of the options. All files are searched:
    live segments, and those that wait to be deleted, are staged, or are kept for an undo. In the result, "visible"
    means that a consumer of committed records gets the record. Exit code 5 if a place could not be searched or
    bytes could not be decoded. With --expect-absent, exit code 1 if a record was found. For a proof, stop the
    broker: a running broker moves records from file to file.
    """


@click.command("doctor")
@common_options
@log_dirs_argument
@lazy_command("cleanerd.cli.doctor:doctor")
def doctor() -> None:
    """Check this host: settings, log directories, owner, lock, free space, leftovers. Each finding with its fix.

    Without LOG_DIR it checks the directories that the settings name. It changes nothing, and works beside a running
    broker. Exit code 0 unless there is a problem.
    """
