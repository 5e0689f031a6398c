"""The arguments that name a command's targets: log directories, partitions; with their shell completion."""

from __future__ import annotations

import os
import stat
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from cleanerd.errors import CleanerdError, ConfigError, system_error
from cleanerd.format.names import METAVAR, TopicPartition
from cleanerd.segments.remote import RemotePath, shown_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from click.shell_completion import CompletionItem


F = TypeVar("F", bound="Callable[..., Any]")

_ANSWER_SECONDS: Final = 1.0
"""How long shell completion waits for the daemon."""


class ExistingPath(click.Path):
    """A path that has to exist: a missing one is the same error in every command (exit code 3)."""

    def __init__(self, *, file_okay: bool = True, dir_okay: bool = True, urls: bool = False) -> None:
        super().__init__(file_okay=file_okay, dir_okay=dir_okay, path_type=Path)
        self._urls = urls

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """The path. ``urls``: that of a store is allowed.

        Raises:
            ConfigError: it does not exist, or is of another kind.
            CleanerdError: a store cannot be queried.
        """
        path = Path(value)
        if self._urls and isinstance(value, str) and "://" in value:
            path = _in_store(value)
            if isinstance(path, RemotePath):
                return path
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            raise ConfigError("does not exist", where=str(path)) from None
        except OSError as error:
            raise system_error("cannot be read", str(path), error) from error
        if stat.S_ISDIR(mode) and not self.dir_okay:
            raise ConfigError("is a directory, not a file", where=str(path))
        if not stat.S_ISDIR(mode) and not self.file_okay:
            raise ConfigError("is not a directory", where=str(path))
        return path


class _LocalPath(click.Path):
    """A path of this machine."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path.

        Raises:
            ConfigError: it is the URL of a store.
        """
        if isinstance(value, str) and "://" in value:
            raise ConfigError(
                "is not a directory of this machine",
                where=shown_url(value),
                hint="a log is cleaned where it can be swapped in: copy it here, or write a cleaned copy with "
                "cleanerd spark clean --output; commands that only read accept URLs: cleanerd spark audit, profile, "
                "snapshot, divergence",
            )
        return super().convert(value, param, ctx)


def log_dirs_argument(function: F) -> F:
    """``[LOG_DIR...]``; duplicates are removed even if spelled differently. :meth:`Common.log_dirs` has the default."""
    return click.argument(
        "log_dirs",
        nargs=-1,
        metavar="[LOG_DIR...]",
        type=_LocalPath(path_type=Path, readable=False),
        callback=lambda _context, _argument, paths: each_once(paths),
    )(function)


def archives_argument(function: F) -> F:
    """``LOG_DIR...`` of this machine; with ``--output`` also URLs, and patterns of both."""
    return click.argument(
        "log_dirs", nargs=-1, required=True, metavar="LOG_DIR...", type=click.Path(path_type=str), callback=_archives
    )(function)


def _archives(context: click.Context, argument: click.Parameter, texts: tuple[str, ...]) -> tuple[Path, ...]:
    if context.params.get("output") is None:
        local = _LocalPath(path_type=Path, readable=False)
        return each_once(local.convert(text, argument, context) for text in texts)
    from cleanerd.spark.launch import require_packages  # noqa: PLC0415 - pyarrow

    require_packages()
    from cleanerd.spark.source.plan import expanded  # noqa: PLC0415

    return each_once(expanded(texts))


def output_option(help_text: str) -> Callable[[F], F]:
    """``--output``, parsed before the arguments: a directory of this machine, or a URL."""
    return click.option("--output", metavar="DIR|URL", is_eager=True, callback=_output, help=help_text)


def _output(_context: click.Context, _option: click.Parameter, text: str | None) -> Path | None:
    if text is None:
        return None
    if "://" not in text:
        return Path(text).absolute()
    from cleanerd.spark.launch import require_packages  # noqa: PLC0415 - pyarrow

    require_packages()
    from cleanerd.spark.stores import path_of  # noqa: PLC0415

    return path_of(text)


def each_once(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Every path once, in its first spelling."""
    return tuple({_real(path): path for path in reversed(tuple(paths))}.values())[::-1]


def _real(path: Path) -> str:
    return str(path) if isinstance(path, RemotePath) else os.path.realpath(path)


def _in_store(text: str) -> Path:
    """The directory that a URL names.

    Raises:
        ConfigError: there is none, or more than one, or the packages to read stores are not installed.
        CleanerdError: the store cannot be queried.
    """
    from cleanerd.spark.launch import require_packages  # noqa: PLC0415 - pyarrow

    require_packages()
    from cleanerd.spark.stores import matching, path_of  # noqa: PLC0415

    path = path_of(text)
    if isinstance(path, RemotePath):
        found = matching(path)
        if len(found) > 1:
            raise ConfigError(f"means {len(found)} directories", where=text, hint=f"name each of them: {found[0]}, ...")
        return found[0]
    return path


def existing_dirs(name: str, metavar: str, *, urls: bool = False, required: bool = True) -> Callable[[F], F]:
    """Directories that have to exist, without duplicates. ``urls``: also those in a store."""
    return click.argument(
        name,
        metavar=metavar,
        nargs=-1,
        required=required,
        type=ExistingPath(file_okay=False, urls=urls),
        callback=lambda _context, _argument, paths: each_once(paths),
    )


def partition_option(function: F) -> F:
    """``--partition TOPIC[-N]``, which can be repeated."""
    return click.option(
        "--partition",
        "partitions",
        multiple=True,
        metavar=METAVAR,
        help="Only this partition, topic, or pattern such as 'orders-*'. Repeatable.",
        shell_complete=_partitions_of_dirs,
    )(function)


def daemons_partitions(*, required: bool = False) -> Callable[[F], F]:
    """``TOPIC[-N]...``: partitions that the running daemon knows."""
    return click.argument(
        "partitions",
        nargs=-1,
        required=required,
        metavar=f"{METAVAR}..." if required else f"[{METAVAR}...]",
        shell_complete=_partitions_of_daemon,
    )


def partition_argument(function: F) -> F:
    """``TOPIC[-N]`` before ``LOG_DIR``, which a shell does not know yet: the directories from the settings are used."""
    return click.argument("partition", metavar=METAVAR, shell_complete=_partitions_of_dirs)(function)


def complete_setting(_context: click.Context, _option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completion of ``--set KEY=``: every key, and below ``topics.NAME.`` those of a topic."""
    from cleanerd.config.keys import DAEMON_FIELDS, TOPIC_FIELDS  # noqa: PLC0415 - pydantic takes its time

    if incomplete.startswith("topics.") and incomplete.count(".") > 1:
        _, topic, _ = incomplete.split(".", 2)
        keys = [f"topics.{topic}.{key}" for key in TOPIC_FIELDS]
    else:
        keys = [*DAEMON_FIELDS, "topics."]
    return _items(f"{key}=" if not key.endswith(".") else key for key in keys if key.startswith(incomplete))


def _complete_strategy(_context: click.Context, _option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completion of ``--strategy``: two names, and the prefix of a header's name."""
    return _items(word for word in ("offset", "timestamp", "header:") if word.startswith(incomplete))


def parse_strategy(text: str) -> tuple[str, str]:
    """The value of ``--strategy``: strategy and header.

    Raises:
        click.BadParameter: neither ``offset`` nor ``timestamp`` nor ``header:NAME``.
    """
    from cleanerd.config.strategy_keys import STRATEGIES  # noqa: PLC0415 - --help needs none of it

    strategy, _, header = text.partition(":")
    if strategy not in STRATEGIES or (strategy == "header") != bool(header.strip()):
        raise click.BadParameter(f"{text!r} is not offset, timestamp or header:NAME", param_hint="--strategy")
    return strategy, header.strip()


def strategy_option(help_text: str, name: str = "strategy") -> Callable[[F], F]:
    """``--strategy``, whose value is a pair of strategy and header, or None."""

    def parsed(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[str, str] | None:
        return None if text is None else parse_strategy(text)

    return click.option(
        "--strategy", name, metavar="STRATEGY", callback=parsed, shell_complete=_complete_strategy, help=help_text
    )


def _partitions_of_dirs(context: click.Context, _option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completion from the directories already typed, else from those in the settings."""
    from cleanerd.segments.log_dir import partition_names  # noqa: PLC0415 - only a shell that completes needs it

    names: list[TopicPartition] = []
    given = [Path(each) for key in ("log_dirs", "paths", "dirs") for each in context.params.get(key) or ()]
    # An option without its value leaves the arguments before it where they were typed.
    given = given or [Path(each) for each in context.args]
    for path in given or _settings_dirs(context):
        try:
            names += partition_names(path)
        except CleanerdError:
            continue
    return _completions(names, incomplete)


def _partitions_of_daemon(context: click.Context, _argument: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from cleanerd.daemon.control_client import find_control_socket, send_request  # noqa: PLC0415 - as above
    from cleanerd.format.names import TopicPartition  # noqa: PLC0415

    try:
        view = send_request(find_control_socket(_settings(context)), "status", timeout_seconds=_ANSWER_SECONDS)
    except CleanerdError:
        return []
    return _completions([TopicPartition(each["topic"], each["partition"]) for each in view["partitions"]], incomplete)


def _completions(names: Iterable[TopicPartition], incomplete: str) -> list[CompletionItem]:
    """Topics with several partitions, and partitions."""
    known = sorted(set(names))
    several = [topic for topic, count in Counter(name.topic for name in known).items() if count > 1]
    return _items(word for word in (*several, *map(str, known)) if word.startswith(incomplete))


def _items(words: Iterable[str]) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - only a shell that completes needs it

    return [CompletionItem(word) for word in words]


def _settings(context: click.Context) -> Any:
    """The settings from the options typed so far: files and ``--set``.

    Raises:
        ConfigError: they are invalid.
    """
    from cleanerd.cli.default_config import default_config  # noqa: PLC0415
    from cleanerd.config.load import load_settings  # noqa: PLC0415

    given = context.params
    paths = given.get("config_paths") or (() if given.get("no_config") else default_config())
    return load_settings(paths, given.get("assignments") or ())


def _settings_dirs(context: click.Context) -> tuple[Path, ...]:
    from cleanerd.resolution.log_dirs import log_dirs_of  # noqa: PLC0415

    try:
        return log_dirs_of(_settings(context))
    except CleanerdError:
        return ()
