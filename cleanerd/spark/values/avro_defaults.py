"""Defaults of Avro's fields, as values.

Defaults are written in JSON: bytes are text there, a 7 may be a double, and a record omits fields with defaults of
their own. fastavro returns them unchanged, the same object for every record, and refuses schemas that Java writes
(``"type": "double", "default": 0``). So it gets schemas without defaults, and the values are set here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cleanerd.spark.values.schemas import UndecodableError

if TYPE_CHECKING:
    from collections.abc import Callable

ASIDE: Final = "cleanerd.default"
"""Where a field's default waits: fastavro keeps attributes that it does not know."""
_DEFAULT: Final = "default"
_FLOAT_NAMES: Final = ("NaN", "Infinity", "-Infinity")
_INTEGER_LIMITS: Final = {"int": 2**31, "long": 2**63}


def strip_defaults(node: Any) -> Any:
    """A schema, as JSON, with each field's default under :data:`ASIDE`; that of an enum is none of a field."""
    if isinstance(node, list):
        return [strip_defaults(each) for each in node]
    if not isinstance(node, dict):
        return node
    found = {key: strip_defaults(value) if key in ("type", "items", "values") else value for key, value in node.items()}
    if isinstance(node.get("fields"), list):
        found["fields"] = [_without(field) for field in node["fields"]]
    return found


def _without(field: Any) -> Any:
    if not isinstance(field, dict):
        return field
    found = strip_defaults({key: value for key, value in field.items() if key not in (_DEFAULT, ASIDE)})
    return {**found, ASIDE: field[_DEFAULT]} if _DEFAULT in field else found


def restore_defaults(fields: list[Any], of: Callable[[Any], Any], label: str) -> None:
    """Give the ``fields`` of a record, as fastavro has parsed it, the values of their defaults.

    ``of``: a type that is named or written out, as a dictionary or the list of a union.

    Raises:
        UndecodableError: a default does not fit its field.
    """
    for field in fields:
        if ASIDE in field:
            try:
                field[_DEFAULT] = _value(field["type"], field[ASIDE], of)
            except ValueError:
                raise UndecodableError(
                    f"{label}: the default of {field['name']} is not a value of its type: {str(field[ASIDE])[:60]}"
                ) from None


def _value(node: Any, default: Any, of: Callable[[Any], Any]) -> Any:  # noqa: PLR0911 - a type each
    """A default's value, as fastavro reads such a value; raises ValueError."""
    node = of(node)
    if isinstance(node, list):
        return _first(node, default, of)
    kind = node["type"]
    if kind == "record" and isinstance(default, dict):
        return {field["name"]: _of_field(field, default, of) for field in node["fields"]}
    if kind == "array" and isinstance(default, list):
        return [_value(node["items"], each, of) for each in default]
    if kind == "map" and isinstance(default, dict):
        return {name: _value(node["values"], each, of) for name, each in default.items()}
    if kind in ("bytes", "fixed") and isinstance(default, str):
        found = default.encode("latin-1")
        return found if len(found) == node.get("size", len(found)) else _misfit()
    if kind in ("float", "double") and (type(default) in (int, float) or default in _FLOAT_NAMES):
        return float(default)
    if kind in _INTEGER_LIMITS and type(default) is int and -_INTEGER_LIMITS[kind] <= default < _INTEGER_LIMITS[kind]:
        return default
    fits = {"null": default is None, "boolean": isinstance(default, bool), "string": isinstance(default, str)}
    return default if fits.get(kind, kind == "enum" and default in node["symbols"]) else _misfit()


def _first(union: list[Any], default: Any, of: Callable[[Any], Any]) -> Any:
    """By the first type of a union that it is a value of; Avro before 1.12 has only the very first."""
    for each in union:
        try:
            return _value(each, default, of)
        except ValueError:
            continue
    return _misfit()


def _of_field(field: Any, default: dict[str, Any], of: Callable[[Any], Any]) -> Any:
    if field["name"] not in default and ASIDE not in field:
        return _misfit()
    return _value(field["type"], default.get(field["name"], field.get(ASIDE)), of)


def _misfit() -> Any:
    raise ValueError
