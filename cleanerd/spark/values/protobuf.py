"""Protobuf: decodes bytes into the columns of a message.

Field numbers identify fields, so values are read by the reader's schema. The writer's schema only shows a record's
message type. The compiler of grpcio-tools compiles ``.proto`` text, in a separate process with a time limit.
"""

from __future__ import annotations

import base64
import importlib.util
import os
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    json_format,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError

from cleanerd.spark.values.schemas import Schema, UndecodableError
from cleanerd.spark.values.shapes import UTC_MICROS, Budget, ColumnShape, list_shape, map_shape, record_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_KNOWN: Final = (any_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
"""Imported, so that they are in the default pool."""

_COMPILE_SECONDS: Final = 60
_MAIN: Final = "cleanerd.value.proto"
"""The schema's file name for the compiler, since a registered schema has none."""

_OF: Final = {
    "int32": pa.int32(), "sint32": pa.int32(), "sfixed32": pa.int32(),
    "int64": pa.int64(), "sint64": pa.int64(), "sfixed64": pa.int64(),
    "uint32": pa.int64(), "fixed32": pa.int64(),
    "uint64": pa.decimal128(20, 0), "fixed64": pa.decimal128(20, 0),
    "bool": pa.bool_(), "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "bytes": pa.binary(),
}  # fmt: skip
"""Arrow types of Protobuf's; unsigned ones get the next larger size, since Spark has only signed numbers."""

_GOOGLE: Final = "google.protobuf."
_GOOGLE_FILES: Final = "google/protobuf/"
_WRAPPERS: Final = frozenset(
    f"{_GOOGLE}{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_AS_JSON: Final = frozenset(f"{_GOOGLE}{name}" for name in ("Struct", "Value", "ListValue"))
_TYPES: Final = {
    value.number: value.name.removeprefix("TYPE_").lower()
    for value in descriptor_pb2.FieldDescriptorProto.Type.DESCRIPTOR.values
}


class ProtobufReader:
    """Values of a column with the message ``message`` of the schema; None: its first."""

    def __init__(self, schema: Schema, label: str, message: str | None = None) -> None:
        self._schema = schema
        self._file, self._pool = _compiled(schema, label)
        self._label = label
        if message is None:
            self._message = _at(self._file, self._pool, (0,), label)
        else:
            try:
                self._message = self._pool.FindMessageTypeByName(message)
            except KeyError:
                there = ", ".join(_names(self._file))[:300]
                raise UndecodableError(f"{label} has no message {message}; there are {there}") from None
        shape = _message_shape(self._message, Budget(label))
        if not self._message.fields:
            raise UndecodableError(f"{label}: {self._message.full_name} has no fields; name another message")
        self._convert = shape.convert
        self.kind = shape.kind

    def decoder(self, writer: Schema | None, label: str) -> Callable[[bytes, Sequence[int]], Any]:
        """A decoder for values of ``writer``; None: the reader's own schema, without message indexes.

        Raises:
            UndecodableError: values of that schema cannot be decoded.
        """
        full_name = self._message.full_name
        opened = _pool_of(_with_numbers(file) for file in _files_of(self._schema, self._label))
        make = message_factory.GetMessageClass(opened.FindMessageTypeByName(full_name))
        known: dict[tuple[int, ...], str] = {}
        written = None if writer is None else _compiled(writer, label)
        convert = self._convert

        def decode(data: bytes, indexes: Sequence[int]) -> Any:
            if written is not None:
                where = tuple(indexes)
                if where not in known:
                    known[where] = str(_at(*written, where, label).full_name)
                if known[where] != full_name:
                    raise UndecodableError(f"it is a {known[where]}, and the column is {full_name}")
            value: Any = make()
            try:
                value.ParseFromString(data)
            except (DecodeError, RecursionError) as error:
                raise UndecodableError(f"is not a valid {full_name}: {str(error)[:200]}") from None
            if not value.IsInitialized():
                missing = ", ".join(value.FindInitializationErrors())
                raise UndecodableError(f"required fields are missing: {missing[:200]}")
            assert convert is not None  # noqa: S101 - a message always has one
            return convert(value)

        return decode


def _message_shape(message: Descriptor, budget: Budget) -> ColumnShape:
    budget.spend()
    name = message.full_name
    if name == f"{_GOOGLE}Timestamp":
        return ColumnShape(UTC_MICROS, _micros)
    if name in _WRAPPERS:
        return ColumnShape(_OF[_TYPES[message.fields_by_name["value"].type]], lambda value: value.value)
    if name in _AS_JSON:
        return ColumnShape(pa.string(), _as_json)
    budget.enter(name)
    fields = {field.name: _field(field, budget) for field in message.fields}
    budget.leave()
    kind = record_shape(name, {each: shape for each, (shape, _) in fields.items()}).kind
    if not fields:
        return ColumnShape(kind, lambda _value: True)
    getters = [(each, get) for each, (_, get) in fields.items()]
    return ColumnShape(kind, lambda value: {each: get(value) for each, get in getters})


def _field(field: FieldDescriptor, budget: Budget) -> tuple[ColumnShape, Callable[[Any], Any]]:
    """Its shape, and a function to get it from a message: null if it has presence and is missing."""
    name = field.name
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry and field.is_repeated:
        key, value = _one(inner.fields_by_name["key"], budget), _one(inner.fields_by_name["value"], budget)
        shape = map_shape(value, key.kind)
        change = shape.convert
        return shape, lambda message: change(dict(getattr(message, name)))  # type: ignore[misc]
    one = _one(field, budget)
    if field.is_repeated:
        many = list_shape(one)
        change = many.convert
        if change is None:
            return many, lambda message: list(getattr(message, name))
        return many, lambda message: change(getattr(message, name))
    convert = one.convert

    def get(message: Any) -> Any:
        if field.has_presence and not message.HasField(name):
            return None
        value = getattr(message, name)
        return value if convert is None else convert(value)

    return one, get


def _one(field: FieldDescriptor, budget: Budget) -> ColumnShape:
    budget.spend()
    if field.message_type is not None:
        return _message_shape(field.message_type, budget)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return ColumnShape(pa.string(), lambda value: names.get(value, str(value)))
    return ColumnShape(_OF[_TYPES[field.type]])


def _micros(value: Any) -> int:
    found = value.seconds * 1_000_000 + value.nanos // 1000
    if not -(2**63) <= found < 2**63:
        raise UndecodableError(f"{value.seconds} seconds are beyond all times in microseconds")
    return int(found)


def _as_json(value: Any) -> str:
    try:
        return str(json_format.MessageToJson(value, indent=None))
    except (json_format.Error, ValueError, RecursionError) as error:
        raise UndecodableError(f"is not JSON: {str(error)[:200]}") from None


def _at(
    file: descriptor_pb2.FileDescriptorProto, pool: descriptor_pool.DescriptorPool, indexes: Sequence[int], label: str
) -> Descriptor:
    """The message that the indexes select: first in the file, then within that message, and so on."""
    within: Any = file.message_type
    names = [file.package] if file.package else []
    for index in indexes:
        if not 0 <= index < len(within):
            raise UndecodableError(f"{label} has no message {list(indexes)}")
        names.append(within[index].name)
        within = within[index].nested_type
    found: Descriptor = pool.FindMessageTypeByName(".".join(names))
    return found


def _names(file: descriptor_pb2.FileDescriptorProto) -> list[str]:
    package = f"{file.package}." if file.package else ""
    return [f"{package}{each.name}" for each in file.message_type]


@lru_cache(maxsize=256)
def _compiled(schema: Schema, label: str) -> tuple[descriptor_pb2.FileDescriptorProto, descriptor_pool.DescriptorPool]:
    """The schema's own file, and a pool with all files that it needs.

    Raises:
        UndecodableError: the compiler refuses it.
    """
    files = _files_of(schema, label)
    try:
        pool = _pool_of(files)
    except (TypeError, KeyError) as error:
        raise UndecodableError(f"{label} is not consistent: {str(error)[:200]}") from None
    if not files[-1].message_type:
        raise UndecodableError(f"{label} has no message")
    return files[-1], pool


@lru_cache(maxsize=256)
def _files_of(schema: Schema, label: str) -> list[descriptor_pb2.FileDescriptorProto]:
    """The files that the schema needs, each after its imports, its own last."""
    files = _described(schema, label)
    return _from_text(schema, label) if files is None else files


def _pool_of(files: Iterable[descriptor_pb2.FileDescriptorProto]) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
        pool.FindFileByName(file.name)
    return pool


def _with_numbers(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """The file with enums as numbers: otherwise proto2 values without a name would be dropped."""
    if file.name.startswith(_GOOGLE_FILES):
        return file
    opened = descriptor_pb2.FileDescriptorProto()
    opened.CopyFrom(file)
    waiting: list[Any] = list(opened.message_type)
    fields: list[Any] = list(opened.extension)
    while waiting:
        message = waiting.pop()
        fields += [*message.field, *message.extension]
        waiting += message.nested_type
    for field in fields:
        if field.type == descriptor_pb2.FieldDescriptorProto.TYPE_ENUM:
            field.type = descriptor_pb2.FieldDescriptorProto.TYPE_INT32
            field.ClearField("type_name")
            field.ClearField("default_value")
    return opened


def _described(schema: Schema, label: str) -> list[descriptor_pb2.FileDescriptorProto] | None:
    """The files of a compiled schema, as Confluent's Python serializer registers it; None for text."""
    own = _descriptor(schema.text, _MAIN)
    if own is None:
        return None
    files = []
    for name, text in schema.references:
        found = _descriptor(text, name)
        if found is None:
            raise UndecodableError(f"{label} is compiled, and {name}, which it needs, is text")
        files.append(found)
    there = {file.name for file in files}
    known: list[descriptor_pb2.FileDescriptorProto] = []

    def require(name: str) -> None:
        if name in there:
            return
        there.add(name)
        try:
            own_copy = descriptor_pool.Default().FindFileByName(name)
        except KeyError:
            return  # the pool reports what is missing
        found = descriptor_pb2.FileDescriptorProto.FromString(own_copy.serialized_pb)
        for each in found.dependency:
            require(each)
        known.append(found)

    for file in (*files, own):
        for name in file.dependency:
            if name.startswith(_GOOGLE_FILES):
                require(name)
    return [*known, *files, own]


def _descriptor(text: str, name: str) -> descriptor_pb2.FileDescriptorProto | None:
    try:
        found = descriptor_pb2.FileDescriptorProto.FromString(base64.standard_b64decode(text.encode("ascii")))
    except (ValueError, DecodeError):
        return None
    found.name = name
    return found


def _from_text(schema: Schema, label: str) -> list[descriptor_pb2.FileDescriptorProto]:
    """The compiled files of ``.proto`` texts, each after its imports."""
    with tempfile.TemporaryDirectory(prefix="cleanerd-proto-") as directory:
        root = Path(directory)
        for name, text in (*schema.references, (_MAIN, schema.text)):
            _write(root, name, text, label)
        target = root / "all.descriptors"
        call = [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", f"-I{_well_known()}"]
        try:
            done = subprocess.run(
                [*call, "--include_imports", f"--descriptor_set_out={target}", _MAIN],
                capture_output=True, text=True, errors="replace", timeout=_COMPILE_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise UndecodableError(f"{label} takes more than {_COMPILE_SECONDS} seconds to compile") from None
        if done.returncode or not target.is_file():
            output = " ".join(line for line in done.stderr.splitlines() if "warning" not in line)
            raise UndecodableError(f"{label} cannot be compiled: {output.replace(_MAIN, 'schema')[:300]}")
        return list(descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes()).file)


def _write(root: Path, name: str, text: str, label: str) -> None:
    """Write it where the compiler finds it; refuses a name that leads elsewhere."""
    parts = name.split("/")
    if name.startswith("/") or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise UndecodableError(f"{label} needs {name[:100]!r}, which is not a file name")
    path = root.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _well_known() -> str:
    found = importlib.util.find_spec("grpc_tools")
    assert found is not None  # noqa: S101 - who gets here has asked
    return os.path.join(os.path.dirname(str(found.origin)), "_proto")
