"""The command lines of commands that clean, or show what a cleaning would do. Modules of their names implement them.

This module loads neither NumPy nor pydantic: ``--help`` of one command is as fast as that of all.
"""

from __future__ import annotations

from pathlib import Path

import click

from cleanerd.cli.cleaning_options import cleaning_options
from cleanerd.cli.lazy_command import lazy_command
from cleanerd.cli.options import by_option, common_options, now_option, top_option
from cleanerd.cli.selecting import (
    ExistingPath,
    log_dirs_argument,
    partition_argument,
    partition_option,
    strategy_option,
)


@click.command("plan")
@common_options
@log_dirs_argument
@cleaning_options
@click.option(
    "--exact", is_flag=True, help="Read all records and decide them as clean does: the exact saving. Writes nothing."
)
@strategy_option(
    "Count the keys for which this strategy (offset, timestamp, header:NAME) retains another record. Reads all.",
    "switch_to",
)
@by_option
@top_option
@click.option("--exit-code", "exit_code_shows_work", is_flag=True, help="Exit code 10 if there is something to clean.")
@lazy_command("cleanerd.cli.plan:plan")
def plan() -> None:
    """Show how dirty each compacted partition is, what a cleaning would save, and why nothing is cleaned.

    First the total, then the partitions, or the topics if there are many, with the largest saving first. Small
    partitions are read completely, large ones are sampled. Only --exact finds damage, and data that clean refuses. The
    broker may run. With --keep-replaced, plan checks that clean could use the directory.
    """


@click.command("clean")
@common_options
@log_dirs_argument
@cleaning_options
@click.option("--dry-run", is_flag=True, help="Write nothing, only show what would happen: plan --exact.")
@click.option("--live", is_flag=True, help="Clean beside a running broker, whose agent swaps the segments.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@lazy_command("cleanerd.cli.clean:clean")
def clean() -> None:
    """Clean the compacted partitions of a stopped broker's log directories.

    Stop the broker first: cleanerd takes the directory's lock, as a broker does. cleanerd writes new segments beside
    the old ones, verifies them, and swaps them in, one segment group after the other. After a crash, each group is
    entirely old or entirely new. With --live the broker runs, and its agent swaps each group.
    """


@click.command("stage")
@common_options
@log_dirs_argument
@cleaning_options
@lazy_command("cleanerd.cli.stage:stage")
def stage() -> None:
    """Write the new segments of the compacted partitions beside the old ones, for cleanerd apply.

    The broker may run, because the log is not changed. Then stop the broker, run cleanerd apply, and start the broker.
    A staged cleaning is valid for cleanerd.plan.max.age.ms, unless the broker cleans or deletes a segment that it is
    based on. With --keep-replaced, apply keeps the segments that it replaces.
    """


@click.command("apply")
@common_options
@log_dirs_argument
@partition_option
@click.option("--unclean", is_flag=True, help="Apply although the broker was not stopped cleanly.")
@click.option("--require", is_flag=True, help="Exit code 4 if a staged cleaning no longer fits.")
@click.option(
    "--keep-replaced",
    "kept",
    metavar="DIR",
    type=click.Path(path_type=Path, readable=False),
    help="Keep the replaced segments in DIR, instead of the directory that cleanerd stage was given.",
)
@lazy_command("cleanerd.cli.apply:apply")
def apply() -> None:
    """Swap in staged cleanings, and finish or undo a swap that a crash cut short. Stop the broker first.

    A staged cleaning that no longer fits is discarded, with its reason. The exit code is 0, so that the broker starts
    with the log as it is; with --require it is 4.
    """


@click.command("undo")
@common_options
@log_dirs_argument
@partition_option
@click.option("--list", "only_list", is_flag=True, help="Show what can be undone; change nothing.")
@click.option(
    "--keep-replaced",
    "kept",
    metavar="DIR",
    type=ExistingPath(file_okay=False),
    help="Where the replaced segments were kept, if the state directory is damaged or does not name it.",
)
@click.option(
    "--hide-later",
    is_flag=True,
    help="Undo although a tombstone of a higher version comes back and hides records written since.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@lazy_command("cleanerd.cli.undo:undo")
def undo() -> None:
    """Undo the last cleaning of each partition that was cleaned with --keep-replaced.

    Stop the broker first. An undo is refused if the partition was cleaned again, or changed below the end of that
    cleaning. It is also refused if a tombstone would come back and hide newer records. Other newer records stay as
    they are. Run undo again to undo the cleaning before.
    """


@click.command("move-aside")
@common_options
@log_dirs_argument
@partition_option
@click.option(
    "--to",
    metavar="DIR",
    type=ExistingPath(file_okay=False),
    help="Target directory, on the same file system. Default: LOG_DIR.aside, which is created.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@lazy_command("cleanerd.cli.move_aside:move_aside_command")
def move_aside() -> None:
    """Move replicas out of a stopped broker's log directory, so that the broker fetches them again from their leaders.

    Without --partition, it moves the replicas that cleanerd doctor names. They were away for longer than their topic's
    delete.retention.ms, and would keep deleted keys or aborted records. Nothing is deleted. It is refused while a
    broker runs, and for a replica that may be the only complete one: the cluster at bootstrap.servers decides that, or
    the metadata log on this host.
    """


@click.command("adopt-state")
@common_options
@click.argument("log_dir", type=ExistingPath(file_okay=False), metavar="LOG_DIR")
@click.option(
    "--from",
    "original",
    metavar="DIR",
    help="The original. Default: the only known log directory with the same directory.id.",
)
@lazy_command("cleanerd.cli.adopt_state:adopt_state")
def adopt_state() -> None:
    """Keep cleanerd's state for a log directory that was copied to a new disk in place of the original.

    Copy with times (cp -a, rsync -a), run this command, and restart a running daemon. Without it, a copy is cleaned
    from its start. It is refused while the original is still in its place, because the copy may be a trial.
    """


@click.command("explain")
@common_options
@partition_argument
@log_dirs_argument
@now_option
@lazy_command("cleanerd.cli.explain:explain")
def explain() -> None:
    """Show why TOPIC-N is or is not cleaned now: the first rule that decides, its numbers, and when that changes.

    A topic or a pattern such as 'orders-*' means all its partitions. Name all directories of log.dirs, or none if the
    settings name them: only one of them has the metadata log. Beside a running broker, the figures come from its agent.
    Without the agent, the broker's checkpoints are read twice, which takes ten seconds. If a daemon runs, explain also
    shows what it does with the partition.
    """
