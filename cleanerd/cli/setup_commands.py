"""The command lines of setup commands: settings, the agent, delegation. Modules of their names implement them.

This module loads neither NumPy, pydantic nor a Kafka client: see ``cleaning_commands.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cleanerd.cli.commands import Subcommands
from cleanerd.cli.lazy_command import lazy_command
from cleanerd.cli.options import common_options
from cleanerd.cli.selecting import log_dirs_argument


@click.group(cls=Subcommands)
def config() -> None:
    """Show, check or generate settings."""


@config.command("show", short_help="Every effective setting and its origin.")
@click.option("--topic", "topic", metavar="NAME", help="Only the settings for this topic, also those of patterns.")
@common_options
@lazy_command("cleanerd.cli.config:show")
def config_show() -> None:
    """Print every effective setting and where it came from.

    These are cleanerd's own settings, without the topics' configuration in the cluster.
    """


@config.command("check", short_help="Check the settings for mistakes.")
@common_options
@lazy_command("cleanerd.cli.config:check")
def config_check() -> None:
    """Check the settings: unknown keys, invalid values, missing files. Exit code 3 if there are any.

    It also warns of valid settings that may surprise you. It knows only cleanerd's settings and Kafka's defaults.
    cleanerd plan and explain also know the topics' configuration in the cluster.
    """


@config.command("generate", short_help="A commented settings file with every key.")
@common_options
@lazy_command("cleanerd.cli.config:generate")
def config_generate() -> None:
    """Print a settings file (TOML) that has every key, explained and commented out."""


@click.group("agent", cls=Subcommands)
def agent() -> None:
    """Let a running broker swap cleaned segments in: the agent in its JVM.

    Add -javaagent:$(cleanerd agent path) to the broker's KAFKA_OPTS and restart the broker, or load the agent into the
    running broker with cleanerd agent attach. Then use cleanerd clean --live LOG_DIR.
    """


@agent.command("path", short_help="Print the path of the agent's jar.")
@common_options
@lazy_command("cleanerd.cli.agent:path")
def agent_path() -> None:
    """Print the path of the agent's jar."""


@agent.command("attach", short_help="Load the agent into a running broker.")
@common_options
@click.option(
    "--pid", type=click.IntRange(min=1), metavar="N", help="The broker's process, instead of log directories."
)
@log_dirs_argument
@click.option(
    "--jar", metavar="PATH", help="Path of the jar, as the broker sees it. Default: that of cleanerd agent path."
)
@click.option(
    "--socket", "wanted", metavar="PATH", help="Where the agent listens. Default: in the first log directory."
)
@click.option(
    "--transport",
    type=click.Choice(["unix", "loopback"]),
    help="How to connect to the agent. Default: unix if the broker's Java supports it, otherwise a port of 127.0.0.1.",
)
@click.option(
    "--allow-unknown-version",
    is_flag=True,
    help="Allow a release of Kafka that the agent does not know, if the agent's self-test succeeds.",
)
@lazy_command("cleanerd.cli.agent:attach_command")
def agent_attach() -> None:
    """Load the agent into the running broker of LOG_DIR, until the broker stops.

    Run it as the broker's user or as root. Give --pid for a broker in a container, which hides its process. A loaded
    agent of another build, or one that does not listen, is replaced as soon as it has no swap in progress.
    """


@agent.command("info", short_help="Show which Kafka it runs in, and whether it can swap.")
@common_options
@click.option(
    "--pid", type=click.IntRange(min=1), metavar="N", help="The broker's process, instead of log directories."
)
@log_dirs_argument
@lazy_command("cleanerd.cli.agent:info_command")
def agent_info() -> None:
    """Show the loaded agent's build, the broker's version of Kafka, and whether the agent can swap segments."""


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
        click.option("--dry-run", is_flag=True, help="Let the cluster check the change; change nothing."),
        click.option(
            "--command-config",
            metavar="FILE",
            type=click.Path(path_type=Path, readable=False),
            help="Kafka's client properties (TLS, login). Default: cleanerd.command.config.",
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

    Sets min.cleanable.dirty.ratio=1 and the largest max.compaction.lag.ms on the topic. If the topic had a compaction
    lag, sets segment.ms to it. The state directory keeps the old values for cleanerd undelegate.
    """


@click.command("undelegate", short_help="Give a topic back to the broker's own cleaner.")
@common_options
@_options
@lazy_command("cleanerd.cli.delegate:undelegate")
def undelegate() -> None:
    """Restore the settings that TOPIC had before cleanerd delegate, so that the broker's own cleaner cleans it again.

    The broker's cleaner keeps the highest offset of every key. That can lose records if the topic has, or was last
    cleaned by, another strategy or tombstone mode. In that case, or if the settings name no strategy, you have to
    confirm the command.
    """
