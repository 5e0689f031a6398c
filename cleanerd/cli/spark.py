"""``cleanerd spark``: verbs that run as Spark jobs, ``--master local[*]`` by default.

A verb's body runs in the driver only: :func:`spark_verb` starts it through ``spark-submit`` with the same command line.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cleanerd.cli.options import common_options
from cleanerd.cli.verbs import VerbGroup, VerbTable
from cleanerd.spark.launch import DEFAULT_MASTER, is_driver, submit

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.cli.options import Common

VERBS: Final[VerbTable] = {
    "clean": ("cleanerd.cli.spark_clean:clean", "Stage a cleaning on many machines; cleanerd apply swaps it in."),
    "audit": ("cleanerd.cli.spark_audit:audit", "Check a cleaning record by record; find where keys still occur."),
    "profile": ("cleanerd.cli.spark_profile:profile", "Count keys, versions, tombstones; what a cleaning would save."),
    "snapshot": ("cleanerd.cli.spark_snapshot:snapshot", "Write the latest state of topics as Parquet."),
}
"""Verb -> where its click command is, and one line for ``--help``."""


class SparkVerbs(VerbGroup):
    """The verbs below ``spark``."""

    def table(self) -> VerbTable:
        """The verbs of :data:`VERBS`, in the order of ``--help``."""
        return VERBS


@click.group("spark", cls=SparkVerbs)
def spark() -> None:
    """Verbs that run as Spark jobs: on this machine, or on any cluster that sees the log directories."""


def spark_verb(function: Callable[..., int]) -> Callable[..., int]:
    """Give a verb the common options and ``--master --conf``; its body is called in a Spark driver, and only there.

    The body gets a :class:`Common` first, as every verb does, and neither master nor conf: ``spark_session`` has them.
    """

    @functools.wraps(function)
    def verb(common: Common, *, master: str, conf: tuple[str, ...], **options: Any) -> int:
        if is_driver():
            common = replace(common, told=None)
            return function(common, **{name: _from_anywhere(value) for name, value in options.items()})
        common.load_settings()  # what is wrong there is told without starting Java
        arguments = click.get_current_context().find_root().obj
        script = Path(__file__).parent / "submitted" / "cleanerd_driver.py"
        return submit(script, arguments, master=master, conf=dict(each.split("=", 1) for each in conf))

    for option in reversed(_OPTIONS):
        option(verb)
    return common_options(verb)


def _from_anywhere(value: Any) -> Any:
    """``value`` with paths made absolute: executors work in other directories than the driver."""
    if isinstance(value, tuple):
        return tuple(_from_anywhere(each) for each in value)
    return value.absolute() if isinstance(value, Path) else value


def _conf(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"{value!r} is not of the form KEY=VALUE")
    return values


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--master", default=DEFAULT_MASTER, show_default=True, metavar="URL", help="local[N], spark://..., yarn, ..."
    ),
    click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_conf,
        help="A setting of Spark (spark.executor.memory=4g). Repeatable.",
    ),
)
