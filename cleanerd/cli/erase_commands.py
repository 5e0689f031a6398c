"""The command lines of ``cleanerd erase``; ``cli/erase_*.py`` implement them; see ``cleaning_commands.py``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from cleanerd.cli.commands import Subcommands
from cleanerd.cli.lazy_command import lazy_command
from cleanerd.cli.options import common_options, now_option
from cleanerd.cli.selecting import ExistingPath, existing_dirs

VALID_DAYS: Final = 90
DEADLINE_DAYS: Final = 30
"""One month: the GDPR's time limit for answering a request."""


@click.group("erase", cls=Subcommands)
def erase() -> None:
    """Erase a key from a topic, and prove for the whole cluster that it is gone."""


def _key_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--base64", "as_base64", is_flag=True, help="The key is given in base64."),
        click.option("--hex", "as_hex", is_flag=True, help="The key is given as hexadecimal digits."),
        click.option("--key", required=True, metavar="K", help="The key."),
        click.argument("topic", metavar="TOPIC"),
    ):
        function = option(function)
    return function


_command_config_option: Final = click.option(
    "--command-config",
    metavar="FILE",
    type=click.Path(path_type=Path, readable=False),
    help="Kafka's client properties (TLS, login). Default: cleanerd.command.config.",
)


@erase.command("plan", short_help="Show where a key is on this host, and when it is removed.")
@common_options
@_key_options
@existing_dirs("log_dirs", "[LOG_DIR...]", required=False)
@now_option
@lazy_command("cleanerd.cli.erase_plan:plan")
def erase_plan() -> None:
    """Show every copy of a key of TOPIC on this host, what removes it, and when at the latest.

    Without LOG_DIR it searches the directories of cleanerd.log.dirs. In the result, "no bound" means that no latest
    time is known, because an event may never happen. The line names the setting that gives a bound. Changes
    nothing. Exit code 5 if a place could not be searched.
    """


_request_option: Final = click.option(
    "--request",
    "request_file",
    type=ExistingPath(dir_okay=False),
    metavar="FILE",
    help="The request, as cleanerd erase request wrote it.",
)


@erase.command("keygen", short_help="Make a key that signs certificates.")
@common_options
@click.argument("file", required=False, metavar="[FILE]", type=click.Path(path_type=Path))
@lazy_command("cleanerd.cli.erase_certify:keygen")
def erase_keygen() -> None:
    """Make an Ed25519 key in FILE, which only its owner may read, and print its public key.

    Without FILE: erasure.key in cleanerd.state.dir, which certify reads by default. FILE.pub gets the public key.
    """


@erase.command("certify", short_help="Search a key on this host, and sign the result.")
@common_options
@_key_options
@existing_dirs("log_dirs", "[LOG_DIR...]", required=False)
@_request_option
@click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The private key. Default: erasure.key in cleanerd.state.dir.",
)
@click.option(
    "--output",
    "output_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the certificate to FILE. Default: stdout.",
)
@click.option(
    "--also",
    multiple=True,
    type=ExistingPath(file_okay=False),
    metavar="DIR",
    help="Search every file below DIR too: snapshots of Spark, archives. Repeatable.",
)
@click.option(
    "--valid-days",
    type=click.IntRange(min=1, max=36_500),
    default=VALID_DAYS,
    show_default=True,
    metavar="N",
    help="erase verify accepts the certificate for N days.",
)
@lazy_command("cleanerd.cli.erase_certify:certify")
def erase_certify() -> None:
    """Search the key of TOPIC in every file on this host, and write a signed statement of what was found.

    Name all directories of log.dirs, or none if the settings name them. The statement has a salted hash of the key, the
    files with sizes and digests, and the files that could not be searched. It is always written. Exit code 0 if the
    key was not found, 1 if a record was found or a replica lacks the request's tombstone. Exit code 5 if a file
    could not be searched.
    """


@erase.command("verify", short_help="Check the certificates of all replicas together.")
@common_options
@click.argument("paths", metavar="CERTIFICATE...", nargs=-1, required=True, type=ExistingPath(dir_okay=False))
@_request_option
@click.option("--topic", metavar="TOPIC", help="Without --request: the topic.")
@click.option("--key", metavar="K", help="The key. Needed without --request.")
@click.option("--hex", "as_hex", is_flag=True, help="The key is given as hexadecimal digits.")
@click.option("--base64", "as_base64", is_flag=True, help="The key is given in base64.")
@click.option(
    "--since-ms",
    type=click.IntRange(min=0),
    metavar="MS",
    help="Ignore certificates of searches before this time. Default: the request's time.",
)
@click.option(
    "--trust",
    multiple=True,
    required=True,
    metavar="KEY|FILE",
    help="A public key, or a file with one per line; a broker id behind a key limits it to that broker. Repeatable.",
)
@click.option(
    "--metadata", type=ExistingPath(file_okay=False), metavar="LOG_DIR", help="Read the replicas from its metadata log."
)
@click.option("--bootstrap-server", "bootstrap", metavar="HOST:PORT", help="Read the replicas from the cluster.")
@_command_config_option
@now_option
@lazy_command("cleanerd.cli.erase_verify:verify")
def erase_verify() -> None:
    """Decide whether the certificates prove that the key is gone from every replica of the topic.

    The proof is complete if each assigned replica has a certificate. It must be newer than the request, cover the log
    past the tombstone, and be signed by a trusted key. Exit code 0 if the proof is complete, 1 if not, 5 if a file
    is not a certificate or was changed.
    """


@erase.command("request", short_help="Write the tombstone; the daemon follows the request.")
@common_options
@_key_options
@click.option("--bootstrap-server", "bootstrap", metavar="HOST:PORT", help="Default: bootstrap.servers.")
@_command_config_option
@click.option(
    "--deadline-days",
    type=click.IntRange(min=0, max=36_500),
    default=DEADLINE_DAYS,
    show_default=True,
    metavar="N",
    help="The key has to be gone after N days.",
)
@click.option(
    "--output",
    "output_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the request to FILE, for other hosts.",
)
@click.option("--dry-run", is_flag=True, help="Read the topic and show what would be written; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@lazy_command("cleanerd.cli.erase_request:request")
def erase_request() -> None:
    """Write a tombstone for a key of TOPIC, as its strategy needs it, and store the request.

    Reads the topic once, to find the partitions that have the key, and its largest version. The tombstone gets a higher
    version, and the flag or header of tombstone.mode. The state directory keeps a salted hash of the key. The daemon
    follows the request until erase certify no longer finds the key on this host.
    """


@erase.command("requests", short_help="List, add or forget requests of this host.")
@common_options
@click.option(
    "--add", type=ExistingPath(dir_okay=False), metavar="FILE", help="Follow a request that was made on another host."
)
@click.option("--forget", metavar="REQUEST", help="Do not follow this request any more.")
@lazy_command("cleanerd.cli.erase_request:requests")
def erase_requests() -> None:
    """List the erasure requests that this host's daemon follows."""
