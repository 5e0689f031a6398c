"""The command lines of setup commands: settings, the agent, delegation. Modules of their names implement them.

This module loads neither NumPy, pydantic nor a Kafka client: see ``cleaning_commands.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleanerd.cli.commands import Subcommands
from cleanerd.cli.lazy_command import lazy_command
from cleanerd.cli.options import common_options
from cleanerd.cli.selecting import log_dirs_argument

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


@click.group(cls=Subcommands)
def config() -> None:
    """Show, check or generate settings."""


@config.command("show", short_help="Every effective setting and its origin.")
@click.option("--topic", "topic", metavar="NAME", help="Only what was set for this topic, globs included.")
@common_options
@lazy_command("cleanerd.cli.config:show")
def config_show() -> None:
    """Print every effective setting and where it came from.

    These are cleanerd's own settings; a topic's configuration in the cluster is not looked at.
    """


@config.command("check", short_help="Look for mistakes.")
@common_options
@lazy_command("cleanerd.cli.config:check")
def config_check() -> None:
    """Look for mistakes: unknown keys, invalid values, files that are not there. Exit code 3 when there are any.

    Warns of settings that may surprise, as far as cleanerd's own settings and Kafka's defaults show; cleanerd plan and
    explain know the topics' configuration in the cluster too.
    """


@config.command("generate", short_help="A commented settings file with every key.")
@common_options
@lazy_command("cleanerd.cli.config:generate")
def config_generate() -> None:
    """Print a settings file (TOML) that has every key, explained and commented out."""


@click.group("agent", cls=Subcommands)
def agent() -> None:
    """Let a running broker swap cleaned segments in: the agent in its JVM.

    Add -javaagent:$(cleanerd agent path) to the broker's KAFKA_OPTS and restart it, or load it into a running one with
    cleanerd agent attach; then cleanerd clean --live LOG_DIR works beside it.
    """


@agent.command("path", short_help="Print the path of the agent's jar.")
@common_options
@lazy_command("cleanerd.cli.agent:path")
def agent_path() -> None:
    """Print where the agent's jar is."""


@agent.command("attach", short_help="Load the agent into a running broker.")
@common_options
@click.option(
    "--pid", type=click.IntRange(min=1), metavar="N", help="The broker's process, instead of log directories."
)
@log_dirs_argument(required=False)
@click.option("--jar", metavar="PATH", help="The jar, by a path that the broker can open. Default: that of agent path.")
@click.option(
    "--socket", "wanted", metavar="PATH", help="Where the agent listens. Default: in the first log directory."
)
@click.option(
    "--transport",
    type=click.Choice(["unix", "loopback"]),
    help="How the agent is reached. Default: by a unix socket where its Java has them, else by TCP on 127.0.0.1.",
)
@click.option(
    "--allow-unknown-version",
    is_flag=True,
    help="Swap in a release that the agent does not know, if its trial succeeds.",
)
@lazy_command("cleanerd.cli.agent:attach_command")
def agent_attach() -> None:
    """Load the agent into the running broker of LOG_DIR; it lasts until the broker stops.

    Run it as the broker's user or as root. For a broker in a container, which hides its process, give --pid. An agent
    of another build that is already loaded hands over as soon as it has no swap at work; so does one of the same build
    that does not listen.
    """


@agent.command("info", short_help="Show which Kafka it runs in, and whether it can swap.")
@common_options
@click.option(
    "--pid", type=click.IntRange(min=1), metavar="N", help="The broker's process, instead of log directories."
)
@log_dirs_argument(required=False)
@lazy_command("cleanerd.cli.agent:info_command")
def agent_info() -> None:
    """Ask the agent who it is, which Kafka it found, and whether it can swap segments there."""


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option("--dry-run", is_flag=True, help="Ask the cluster whether it would take it; change nothing."),
        click.option(
            "--command-config",
            metavar="FILE",
            type=click.Path(path_type=Path, readable=False),
            help="Kafka's client properties: TLS, who logs in. Default: cleanerd.command.config.",
        ),
        click.argument("topic", metavar="TOPIC"),
    ):
        function = option(function)
    return function


@click.command("delegate", short_help="Keep the broker's own cleaner away from a topic.")
@common_options
@_options
@lazy_command("cleanerd.cli.delegate:delegate")
def delegate() -> None:
    """Keep the broker's own cleaner away from TOPIC, so that cleanerd alone cleans it.

    Sets min.cleanable.dirty.ratio=1 and the largest max.compaction.lag.ms on the topic; when the topic had a compaction
    lag, segment.ms takes its place. What was set before is saved in the state directory for cleanerd hand-back.
    """


@click.command("hand-back", short_help="Give a topic back to the broker's own cleaner.")
@common_options
@_options
@lazy_command("cleanerd.cli.delegate:hand_back")
def hand_back() -> None:
    """Put back what was set on TOPIC before cleanerd delegate: the broker's own cleaner cleans it again.

    It keeps the highest offset of every key. Under another strategy or tombstone mode that loses records, so cleanerd
    asks first: also for a topic that was last cleaned that way, and where the settings name no strategy.
    """
