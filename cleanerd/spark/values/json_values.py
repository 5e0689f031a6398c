"""JSON: decodes values into the columns that a JSON Schema describes.

Fields that the schema does not name are omitted; values of open types (none, several) become JSON text. The types of
named fields are required; other rules (lengths, patterns, required) are not checked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from cleanerd.spark.values.schemas import Schema, UndecodableError, parsed_json
from cleanerd.spark.values.shapes import Budget, ColumnShape, list_shape, map_shape, record_shape

_ROOT: Final = "#"


class JsonReader:
    """Values of a column whose type is the reader's schema."""

    def __init__(self, schema: Schema, label: str, message: str | None = None) -> None:
        if message is not None:
            raise UndecodableError(f"{label} is a JSON schema, which has no message {message}")
        documents = {name: parsed_json(text, name) for name, text in schema.references}
        documents[""] = parsed_json(schema.text, label)
        self._shape = _Shapes(documents, Budget(label)).of(documents[""], "")
        self.kind = self._shape.kind

    def decoder(self, writer: Schema | None, label: str) -> Callable[[bytes, Sequence[int]], Any]:
        """The same for every writer, because JSON describes itself. ``writer`` has to be JSON too."""
        del writer, label
        change = self._shape.convert

        def decode(data: bytes, _indexes: Sequence[int]) -> Any:
            try:
                value = json.loads(data.decode(), parse_constant=_no_number)
            except UnicodeDecodeError:
                raise UndecodableError("is not UTF-8") from None
            except (ValueError, RecursionError) as error:
                raise UndecodableError(f"is not JSON: {str(error)[:200]}") from None
            return value if change is None or value is None else change(value)

        return decode


class _Shapes:
    """The shapes of schemas in ``documents``, by name; the main schema has no name."""

    def __init__(self, documents: dict[str, Any], budget: Budget) -> None:
        self._documents = documents
        self._budget = budget

    def of(self, node: Any, document: str) -> ColumnShape:
        self._budget.spend()
        if not isinstance(node, dict):
            return _text()
        if "$ref" in node:
            return self._referred(str(node["$ref"]), document)
        one = self._beside_null(node)
        if one is not None:
            return self.of(one, document)
        kinds = node.get("type")
        if isinstance(kinds, list):
            kinds = [each for each in kinds if each != "null"]
            kinds = kinds[0] if len(kinds) == 1 else "number" if set(kinds) == {"integer", "number"} else None
        if kinds is None and isinstance(node.get("properties"), dict):
            kinds = "object"
        return self._typed(kinds, node, document)

    def _typed(self, kind: Any, node: dict[str, Any], document: str) -> ColumnShape:
        if kind == "object":
            return self._object(node, document)
        if kind == "array" and isinstance(node.get("items"), dict):
            self._budget.enter(f"array {id(node)}")
            found = _checked(list, "array", list_shape(self.of(node["items"], document)))
            self._budget.leave()
            return found
        return _SIMPLE[kind] if isinstance(kind, str) and kind in _SIMPLE else _text()

    def _object(self, node: dict[str, Any], document: str) -> ColumnShape:
        properties, others = node.get("properties"), node.get("additionalProperties")
        self._budget.enter(f"object {id(node)}")
        if isinstance(properties, dict) and properties:
            fields = {name: _named(name, self.of(each, document)) for name, each in properties.items()}
            found = record_shape(str(node.get("title", "object")), fields)
        elif isinstance(others, dict):
            found = map_shape(self.of(others, document))
        else:
            found = None
        self._budget.leave()
        return _text() if found is None else _checked(dict, "object", found)

    def _beside_null(self, node: dict[str, Any]) -> Any:
        """The single schema beside null, if there is exactly one."""
        for word in ("oneOf", "anyOf"):
            members = node.get(word)
            if isinstance(members, list):
                rest = [each for each in members if not (isinstance(each, dict) and each.get("type") == "null")]
                return rest[0] if len(rest) == 1 else {}
        return None

    def _referred(self, target: str, document: str) -> ColumnShape:
        name, _, pointer = target.partition(_ROOT)
        owner = name or document
        found = self._documents.get(owner)
        for part in [each for each in pointer.split("/") if each]:
            step = part.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, dict) else None
        if found is None:
            raise UndecodableError(f"{self._budget.label}: nothing is at the reference {target!r}")
        self._budget.enter(f"{owner}{_ROOT}{pointer}")
        shape = self.of(found, owner)
        self._budget.leave()
        return shape


def _named(name: str, shape: ColumnShape) -> ColumnShape:
    """Adds the field's name to the reason."""
    change = shape.convert
    if change is None:
        return shape

    def convert(value: Any) -> Any:
        try:
            return change(value)
        except UndecodableError as error:
            text = str(error)
            raise UndecodableError(f"{name}{'' if text.startswith(' ') else '.'}{text}") from None

    return ColumnShape(shape.kind, convert)


def _checked(python: type, word: str, shape: ColumnShape) -> ColumnShape:
    change = shape.convert

    def convert(value: Any) -> Any:
        if type(value) is not python:
            raise _is_no(word, value)
        return value if change is None else change(value)

    return ColumnShape(shape.kind, convert)


def _integer(value: Any) -> int:
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise _is_no("integer", value)
    if not -(2**63) <= value < 2**63:
        raise UndecodableError(" has more than 64 bits")
    return int(value)


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise _is_no("number", value)
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if math.isinf(found):  # JSON cannot represent it: it was 1e400
        raise UndecodableError(" is beyond all numbers of 64 bits")
    return found


def _string(value: Any) -> str:
    if type(value) is not str:
        raise _is_no("string", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UndecodableError(" has half a character in its text") from None
    return value


def _is_no(word: str, value: Any) -> UndecodableError:
    return UndecodableError(f" is not a value of type {word}: {json.dumps(value)[:60]}")


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number there")


def _text() -> ColumnShape:
    """Any value, as JSON text."""
    return ColumnShape(pa.string(), _as_text)


def _as_text(value: Any) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise UndecodableError(" has a number beyond all of 64 bits") from None
    except RecursionError:  # a value that could just be parsed is one level too deep to be written
        raise UndecodableError(" is nested too deeply") from None


_SIMPLE: Final = {
    "string": ColumnShape(pa.string(), _string),
    "integer": ColumnShape(pa.int64(), _integer),
    "number": ColumnShape(pa.float64(), _number),
    "boolean": _checked(bool, "boolean", ColumnShape(pa.bool_())),
}
