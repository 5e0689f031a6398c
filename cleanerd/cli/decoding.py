"""The options that select the schemas by which keys and values are decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from cleanerd.spark.values.decode_options import FRAMINGS, LIMIT, Decode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_NAMES: Final = ("schemas", "value_schema", "key_schema", "value_message", "key_message", "framing", "undecoded_limit")


def decode_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options; :func:`decode_from` makes one thing of them."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def decode_from(given: Mapping[str, Any]) -> Decode | None:
    """The decoding by the options; None: nothing is to be decoded.

    Raises:
        click.UsageError: they do not go together.
        ConfigError: one makes no sense.
    """
    if given["decode"] is None:
        for name in _NAMES:
            if given[name] is not None:
                raise click.UsageError(f"--{name.replace('_', '-')} needs --decode")
        return None
    if given["schemas"] is None:
        raise click.UsageError("--decode needs --schemas: a schema registry's URL, or a directory")
    limit = given["undecoded_limit"]
    return Decode(
        given["schemas"],
        given["decode"],
        value_schema=given["value_schema"],
        key_schema=given["key_schema"],
        value_message=given["value_message"],
        key_message=given["key_message"],
        framing=given["framing"] or FRAMINGS[0],
        limit=LIMIT if limit is None else limit,
    )


_OPTIONS: Final = (
    click.option("--decode", metavar="COLUMNS", help="Make columns of the fields of value, of key, or of key,value."),
    click.option("--schemas", metavar="URL|DIR", help="A schema registry, or a directory of schemas."),
    click.option(
        "--value-schema", metavar="SUBJECT[:VERSION]", help="That makes the columns; else the newest of TOPIC-value."
    ),
    click.option("--key-schema", metavar="SUBJECT[:VERSION]", help="The same of keys; else the newest of TOPIC-key."),
    click.option("--value-message", metavar="NAME", help="Protobuf: the full name of the message; else the first."),
    click.option("--key-message", metavar="NAME", help="The same of keys."),
    click.option(
        "--framing",
        type=click.Choice(FRAMINGS),
        help=f"What stands before a value: a zero byte and a schema's id, or nothing.  [default: {FRAMINGS[0]}]",
    ),
    click.option(
        "--undecoded-limit",
        type=click.IntRange(min=0),
        metavar="N",
        help=f"Give up when more keys and values cannot be decoded.  [default: {LIMIT}]",
    ),
)
