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
    """Look after the log directories of cleanerd.log.dirs until SIGTERM or SIGINT comes.

    SIGHUP (or cleanerd reload) reads the settings again. Without cleanerd.mode it observes: it works out what
    cleaning would save and writes nothing to a log directory. cleanerd status and cleanerd top show what it does.
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
    help="At most N rows a table; 0 for all.",
)
@click.option("--from-offset", type=click.IntRange(min=0), metavar="OFFSET", help="Nothing below this offset.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="OFFSET", help="Nothing above this offset.")
@strategy_option("Partitions: count what timestamp or header:NAME finds in the records. Reads all of them.")
@click.option("--as", "kind", type=click.Choice(KIND_NAMES), help="What the file is, when its name does not say.")
@lazy_command("cleanerd.cli.inspect:inspect")
def inspect() -> None:
    """Decode any file that a broker keeps: segments, indexes, snapshots, checkpoints, KRaft metadata.

    A partition's directory gives a table of its segments, a log directory tables of its partitions and topics. Damaged
    files are decoded as far as it goes; then the error names the byte (exit code 5). Of the cluster's metadata only
    settings about logs and their cleaning are shown.
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
    help="The log is clean below this offset. Default: what cleaner-offset-checkpoint says.",
)
@click.option(
    "--against",
    type=ExistingPath(file_okay=False),
    metavar="DIR",
    help="A copy from before the cleaning, or the replaced segments: nothing may be altered, lost or back again.",
)
@click.option("--many-rounds", is_flag=True, help="With --against: more than one cleaning lies between.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=VERIFY_LIMIT,
    show_default=True,
    metavar="N",
    help="At most N findings of each kind for a partition; 0 for all.",
)
@now_option
@lazy_command("cleanerd.cli.verify:verify")
def verify() -> None:
    """Prove that segments, partitions or log directories are consistent.

    Checksums, every record's structure, the order of offsets, index files by what lookups find, transaction indexes,
    producer snapshots, leader epochs, checkpoints, files left over; below the clean point at most one record a key.
    Exit code 5 when there is an error among the findings, 1 when all of them are partitions that cannot be read.
    --partition goes with log directories. Beside a running broker the newest bytes may be in motion.
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
    or none when the settings name them. A record that matches one of the options is found.
    All files count: live segments, those that wait to be deleted, those of a replacement, staged and kept ones.
    Visible is a record that a consumer of committed records gets. Exit code 0, with --expect-absent 1 when a record was
    found; 5 when a place could not be searched, or bytes could not be decoded, and so may hold it. For a proof stop the
    broker: a running one moves records from file to file.
    """


@click.command("doctor")
@common_options
@log_dirs_argument(required=False)
@lazy_command("cleanerd.cli.doctor:doctor")
def doctor() -> None:
    """Check this host: settings, log directories, owner, lock, free space, leftovers. Each finding with its fix.

    Without LOG_DIR those that the settings name, as for cleanerd run. Changes nothing, and works beside a running
    broker. Exit code 0 unless there is a problem.
    """
