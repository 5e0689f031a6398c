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
@log_dirs_argument(required=False)
@cleaning_options
@click.option(
    "--exact", is_flag=True, help="Index and decide as a cleaning would, for the exact saving. Writes nothing."
)
@strategy_option(
    "Count the keys that would have another winner under offset, timestamp or header:NAME. Reads everything.",
    "switch_to",
)
@by_option
@top_option
@click.option("--exit-code", "tell_by_exit", is_flag=True, help="Exit with 10 when there is work to do.")
@lazy_command("cleanerd.cli.plan:plan")
def plan() -> None:
    """Show how dirty each compacted partition is, what a cleaning would save, and why nothing is cleaned.

    Begins with the total; then the partitions, or the topics if there are many, with the largest saving first. Small
    partitions are read whole, large ones are sampled. Damage, and data that clean refuses, show up only
    with --exact. Allowed beside a running broker. With --keep-replaced it only checks that clean could use the
    directory.
    """


@click.command("clean")
@common_options
@log_dirs_argument(required=False)
@cleaning_options
@click.option("--dry-run", is_flag=True, help="Decide, say what would happen, write nothing: plan --exact.")
@click.option("--live", is_flag=True, help="Beside a running broker, whose agent swaps the segments (cleanerd agent).")
@click.option("--yes", is_flag=True, help="Do not ask.")
@lazy_command("cleanerd.cli.clean:clean")
def clean() -> None:
    """Clean the compacted partitions of a stopped broker's log directories.

    The broker must be down: cleanerd takes the directory's lock, as a broker would. Every partition is read, cleaned
    into new segments beside the old ones, verified, and swapped in group by group; a crash at any moment leaves old
    or new. With --live the broker runs and swaps each group itself.
    """


@click.command("stage")
@common_options
@log_dirs_argument(required=False)
@cleaning_options
@lazy_command("cleanerd.cli.stage:stage")
def stage() -> None:
    """Write the new segments of the compacted partitions beside the old ones, for cleanerd apply.

    The broker may run: nothing of the log is changed. Stop the broker, run cleanerd apply, start the broker. A plan is
    good for cleanerd.plan.max.age.ms and as long as the broker does not itself clean or delete what it rests on. With
    --keep-replaced it is apply that keeps the segments that it replaces.
    """


@click.command("apply")
@common_options
@log_dirs_argument(required=False)
@partition_option
@click.option("--unclean", is_flag=True, help="Apply although the broker was not stopped cleanly.")
@click.option("--require", is_flag=True, help="A plan that no longer fits is an error, exit code 4.")
@click.option(
    "--keep-replaced",
    "kept",
    metavar="DIR",
    type=click.Path(path_type=Path, readable=False),
    help="Keep what is replaced in DIR for cleanerd undo, whatever the plan says.",
)
@lazy_command("cleanerd.cli.apply:apply")
def apply() -> None:
    """Swap in what cleanerd stage prepared; finish or undo what a crash left. The broker must be down.

    A plan that no longer fits is dropped, with its reason, and the broker starts with the log as it is: exit code 0,
    unless --require is given.
    """


@click.command("undo")
@common_options
@log_dirs_argument()
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
@click.option("--yes", is_flag=True, help="Do not ask.")
@lazy_command("cleanerd.cli.undo:undo")
def undo() -> None:
    """Undo the last cleaning of each partition that was cleaned with --keep-replaced.

    The broker must be down. Refused when the partition was cleaned again since, or when anything that the cleaning
    covered is no longer what it left, or when a tombstone that comes back would hide records that were appended since.
    Other records that were appended since do not matter. Call it again to undo the cleaning before that one.
    """


@click.command("move-aside")
@common_options
@log_dirs_argument()
@partition_option
@click.option(
    "--to",
    metavar="DIR",
    type=ExistingPath(file_okay=False),
    help="Where to. Default: LOG_DIR.aside, which is created. It has to be on the same file system.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@lazy_command("cleanerd.cli.move_aside:move_aside_command")
def move_aside() -> None:
    """Move replicas out of a stopped broker's log directory, so that the broker fetches them again from their leaders.

    Without --partition: the replicas that cleanerd doctor names. They were away longer than their topic's
    delete.retention.ms, and keep deleted keys, or aborted records, for good. Nothing is deleted. Refused while a broker
    runs, and where this replica may be the only complete one. With bootstrap.servers the cluster is asked, otherwise
    the metadata log on this host.
    """


@click.command("adopt-state")
@common_options
@click.argument("log_dir", type=ExistingPath(file_okay=False), metavar="LOG_DIR")
@click.option(
    "--from",
    "original",
    metavar="DIR",
    help="Where it was copied from. Default: the one known place with its directory.id.",
)
@lazy_command("cleanerd.cli.adopt_state:adopt_state")
def adopt_state() -> None:
    """Keep cleanerd's state for a log directory that was copied to a new disk in place of the original.

    Without it, a copy is cleaned from its start. Refused while the original is still where it was, because then the
    copy may be a trial. Copy with times (cp -a, rsync -a). Restart a running daemon afterwards.
    """


@click.command("explain")
@common_options
@partition_argument
@log_dirs_argument(required=False)
@now_option
@lazy_command("cleanerd.cli.explain:explain")
def explain() -> None:
    """Say why TOPIC-N is or is not cleaned now: the first rule that decides, its numbers, and when that changes.

    A topic or a pattern such as 'orders-*' stands for all its partitions. Name all directories of log.dirs: only one of
    them holds the metadata log. A running broker with cleanerd's agent is asked for its own figures. Without the agent
    the broker's checkpoints are read twice, which takes ten seconds. Also shows what a running daemon does with it.
    """
