"""Avro: decodes bytes by the writer's schema into a column of the reader's, by Avro's resolution rules.

fastavro reads and resolves. This module applies logical types itself, by the reader's schema (a time outside of
Python's range is not an error), and refuses schemas with which fastavro would not terminate.

Defaults of Avro's fields are written in JSON: bytes are text there, a 7 may be a double, and a record omits fields with
defaults. fastavro returns them unchanged, the same object for every record, and refuses schemas that Java writes
(``"type": "double", "default": 0``). So it gets schemas without defaults, and the values are set here.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType

from cleanerd.spark.values.schemas import Schema, UndecodableError, parsed_json
from cleanerd.spark.values.shapes import (
    LOCAL_MICROS,
    Budget,
    ColumnShape,
    decimal_shape,
    list_shape,
    map_shape,
    micros_shape,
    record_shape,
)

ASIDE: Final = "cleanerd.default"
"""The attribute that stores a field's default: fastavro keeps unknown attributes."""
_DEFAULT: Final = "default"
_FLOAT_NAMES: Final = ("NaN", "Infinity", "-Infinity")
_INTEGER_LIMITS: Final = {"int": 2**31, "long": 2**63}


def strip_defaults(node: Any) -> Any:
    """A schema, as JSON, with each field's default moved to :data:`ASIDE`; an enum's default is not a field's."""
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
    """Give the ``fields`` of a record, as parsed by fastavro, the values of their defaults.

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
    """The first type of a union that the value fits; Avro before 1.12 uses only the very first."""
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


_PLAIN: Final = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "string": pa.string(),
}  # fmt: skip
_OWN_NAMES: Final = frozenset({*_PLAIN, "null"})
"""Names that no other type may have."""

_TIMES: Final = {
    "timestamp-millis": micros_shape(1000),
    "timestamp-micros": micros_shape(1),
    "timestamp-nanos": micros_shape(1000, divide=True),
    "local-timestamp-millis": micros_shape(1000, kind=LOCAL_MICROS),
    "local-timestamp-micros": micros_shape(1, kind=LOCAL_MICROS),
    "local-timestamp-nanos": micros_shape(1000, divide=True, kind=LOCAL_MICROS),
}
_COUNTED: Final = frozenset({*_TIMES, "time-millis", "time-micros", "date"})
"""The same number means different times under each of them."""

_FASTAVRO_KEYS: Final = ("__fastavro_parsed__", "__named_schemas")
_OF_PYTHON: Final = {
    "null": type(None), "boolean": bool, "int": int, "long": int, "float": float, "double": float, "bytes": bytes,
    "fixed": bytes, "string": str, "enum": str, "array": list, "map": dict, "record": dict,
}  # fmt: skip
_WIDER: Final = ({"int", "long"}, {"float", "double"})


class Parsed:
    """A schema, and its named types."""

    def __init__(self, schema: Schema, label: str) -> None:
        self.names: dict[str, Any] = {}
        try:
            for name, text in schema.references:
                fastavro.parse_schema(_unmarked(text, name), named_schemas=self.names)
            self.root: Any = fastavro.parse_schema(_unmarked(schema.text, label), named_schemas=self.names)
        except UndecodableError:
            raise
        except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UndecodableError(
                f"{label} is not an Avro schema: {type(error).__name__}: {str(error)[:200]}"
            ) from None
        for name in self.names.keys() & _OWN_NAMES:  # fastavro accepts it, but uses the other one
            raise UndecodableError(
                f"{label} is not an Avro schema: it names a type {name}, as one of Avro's own is named"
            )
        self.label = label

    def of(self, node: Any) -> Any:
        """The type for a name; a union as a list, others as a dictionary."""
        if isinstance(node, str):
            return self.names.get(node, {"type": node})
        if isinstance(node, dict) and isinstance(node["type"], list | dict):
            return self.of(node["type"])
        return node


def _unmarked(text: str, label: str) -> Any:
    """A schema as JSON without fastavro's own mark, which would skip its check."""
    found = parsed_json(text, label)
    if any(key in json.dumps(found) for key in _FASTAVRO_KEYS):
        raise UndecodableError(f"{label} is not an Avro schema: it has names that only fastavro gives")
    return strip_defaults(found)


class AvroReader:
    """Values of a column whose type is the reader's schema."""

    def __init__(self, schema: Schema, label: str, message: str | None = None) -> None:
        if message is not None:
            raise UndecodableError(f"{label} is an Avro schema, which has no message {message}")
        self._reader = Parsed(schema, label)
        self._shape = _shape(self._reader, self._reader.root, Budget(label))
        self._plain = _with_defaults(_without_logical(self._reader), label)
        self.kind = self._shape.kind

    def decoder(self, writer: Schema | None, label: str) -> Callable[[bytes, Sequence[int]], Any]:
        """A decoder for values written with ``writer``; None: with the reader's own schema.

        Raises:
            UndecodableError: values of that schema cannot be decoded.
        """
        written = self._reader if writer is None else Parsed(writer, label)
        _require_finite(written, written.root, Budget(label))
        _require_same_units(written, self._reader, written.root, self._reader.root, Budget(label))
        plain = _without_logical(written)
        reader = None if writer is None else self._plain
        change = self._shape.convert

        def decode(data: bytes, _indexes: Sequence[int]) -> Any:
            file = io.BytesIO(data)
            try:
                value = fastavro.schemaless_reader(file, plain, reader)
            except EOFError:
                raise UndecodableError("it ends in the middle of a value") from None
            except Exception as error:  # noqa: BLE001 - whatever strange bytes make of a library
                raise UndecodableError(f"{type(error).__name__}: {str(error)[:200]}") from None
            if file.tell() != len(data):
                raise UndecodableError(f"{len(data) - file.tell()} bytes are left over behind the value")
            return value if change is None or value is None else change(value)

        return decode


def _with_defaults(plain: Any, label: str) -> Any:
    """The same schema, which fastavro has parsed, with the values of its fields' defaults."""
    names: dict[str, Any] = {}
    records: list[Any] = []

    def collect(node: Any) -> None:
        if isinstance(node, list):
            for each in node:
                collect(each)
        elif isinstance(node, dict):
            if "name" in node:
                names[node["name"]] = node
            for inner in ("type", "items", "values"):
                collect(node.get(inner))
            for field in node.get("fields", ()):
                collect(field["type"])
            if "fields" in node:
                records.append(node)

    def of(node: Any) -> Any:
        node = names.get(node, {"type": node}) if isinstance(node, str) else node
        return of(node["type"]) if isinstance(node, dict) and isinstance(node["type"], dict | list) else node

    collect(plain)
    for record in records:
        restore_defaults(record["fields"], of, label)
    return plain


def _shape(schema: Parsed, node: Any, budget: Budget) -> ColumnShape:
    budget.spend()
    node = schema.of(node)
    if isinstance(node, list):
        return _union_shape(schema, node, budget)
    kind = node["type"]
    if kind in _PLAIN:
        return _logical_shape(node, ColumnShape(_PLAIN[kind]))
    if kind == "fixed":
        return _logical_shape(node, ColumnShape(pa.binary()))
    if kind == "enum":
        return ColumnShape(pa.string())
    if kind == "null":
        raise UndecodableError(f"{budget.label}: a type that is always null makes no column")
    budget.enter(node.get("name", kind) if kind == "record" else f"{kind} {id(node)}")
    if kind == "array":
        found = list_shape(_shape(schema, node["items"], budget))
    elif kind == "map":
        found = map_shape(_shape(schema, node["values"], budget))
    else:
        fields = {}
        for field in node["fields"]:
            if schema.of(field["type"]) != {"type": "null"}:
                fields[field["name"]] = _shape(schema, field["type"], budget)
        found = record_shape(str(node.get("name")), fields)
    budget.leave()
    return found


def _logical_shape(node: Any, plain: ColumnShape) -> ColumnShape:
    """By Avro's rules a logical type that does not fit its type is ignored."""
    kind, logical = node["type"], node.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = node.get("precision"), node.get("scale", 0)
        if isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision and precision > 0:
            return decimal_shape(precision, scale)
    if kind == "long" and logical in _TIMES:
        return _TIMES[logical]
    if kind == "int" and logical == "date":
        return ColumnShape(pa.date32())
    return plain


def _union_shape(schema: Parsed, union: list[Any], budget: Budget) -> ColumnShape:
    """One type beside null is that type; several become a struct with a field for each, of which one is not null."""
    members = [each for each in map(schema.of, union) if each["type"] != "null"]
    kinds = {each["type"] for each in members}
    if kinds in _WIDER and not any("logicalType" in each for each in members):
        members = [{"type": "long" if "long" in kinds else "double"}]
    if not members:
        raise UndecodableError(f"{budget.label}: a type that is always null makes no column")
    if len(members) == 1:
        return _shape(schema, members[0], budget)
    fields: dict[type, tuple[str, ColumnShape]] = {}
    for each in members:
        python = _OF_PYTHON[each["type"]]
        name = str(each.get("name", each["type"])).rpartition(".")[2]
        if python in fields:
            raise UndecodableError(
                f"{budget.label}: a union of {fields[python][0]} and {name}: values do not show which of them they are"
            )
        fields[python] = (name, _shape(schema, each, budget))
    kind = pa.struct([pa.field(name, shape.kind) for name, shape in fields.values()])

    def convert(value: Any) -> Any:
        name, shape = fields[type(value)]
        return {name: value if shape.convert is None else shape.convert(value)}

    return ColumnShape(kind, convert)


def _require_finite(schema: Parsed, node: Any, budget: Budget) -> int:
    """The least bytes of a value. Recursive types, and lists of items without bytes, are refused.

    A few bytes may claim a list of 2^60 items; and a recursive type is as deep as its bytes say.
    """
    budget.spend()
    node = schema.of(node)
    if isinstance(node, list):
        for each in node:
            _require_finite(schema, each, budget)
        return 1
    kind = node["type"]
    if kind == "fixed":
        return int(node["size"])
    if kind in ("float", "double"):
        return 4 if kind == "float" else 8
    if kind in ("array", "map", "record", "error"):
        budget.enter(node.get("name", kind) if kind not in ("array", "map") else f"{kind} {id(node)}")
        if kind == "array" and not _require_finite(schema, node["items"], budget):
            raise UndecodableError(f"{budget.label}: an array of what takes no bytes can be of any length")
        if kind == "map":
            _require_finite(schema, node["values"], budget)
        least = 1
        if kind not in ("array", "map"):
            least = sum([_require_finite(schema, field["type"], budget) for field in node["fields"]])
        budget.leave()
        return least
    return 0 if kind == "null" else 1


def _require_same_units(writer: Parsed, reader: Parsed, written: Any, read: Any, budget: Budget) -> None:
    """Check that a number means the same in both.

    Avro does not compare units, such as milliseconds and microseconds.
    """
    budget.spend()
    members = _members(reader, read)
    for each in _members(writer, written):
        alike = [other for other in members if other["type"] == each["type"]]
        for other in alike or [other for other in members if (each["type"], other["type"]) == ("int", "long")]:
            _require_same_unit(writer, reader, each, other, budget)


def _require_same_unit(writer: Parsed, reader: Parsed, written: Any, read: Any, budget: Budget) -> None:
    """The same for two types, neither of them a union."""
    was, now = written.get("logicalType"), read.get("logicalType")
    if was != now and (was in _COUNTED and now in _COUNTED):
        raise UndecodableError(f"{budget.label} has {was} where the column's schema has {now}")
    if was == now == "decimal" and written.get("scale", 0) != read.get("scale", 0):
        raise UndecodableError(f"{budget.label} has a decimal of another scale than the column's schema")
    if written["type"] != read["type"]:
        return
    for inner in ("items", "values"):
        if inner in written and inner in read:
            _require_same_units(writer, reader, written[inner], read[inner], budget)
    fields = {field["name"]: field for field in written.get("fields", ())}
    for field in read.get("fields", ()):
        other = next((fields[name] for name in (field["name"], *field.get("aliases", ())) if name in fields), None)
        if other is not None:
            _require_same_units(writer, reader, other["type"], field["type"], budget)


def _members(schema: Parsed, node: Any) -> list[Any]:
    """A single type, or those of a union."""
    node = schema.of(node)
    return [schema.of(each) for each in node] if isinstance(node, list) else [node]


def _without_logical(schema: Parsed) -> Any:
    """The schema for fastavro: only types, each named one written out at its first use."""
    named: set[str] = set()

    def plain(node: Any) -> Any:
        node = schema.of(node)
        if isinstance(node, list):
            return [plain(each) for each in node]
        if node.get("name") in named:
            return node["name"]
        if "name" in node:
            named.add(node["name"])
        found = {key: value for key, value in node.items() if key not in ("logicalType", "precision", "scale")}
        found.pop("__fastavro_parsed__", None)
        found.pop("__named_schemas", None)
        for inner in ("items", "values"):
            if inner in found:
                found[inner] = plain(found[inner])
        if "fields" in found:
            found["fields"] = [{**field, "type": plain(field["type"])} for field in found["fields"]]
        return found

    return fastavro.parse_schema(plain(schema.root))
