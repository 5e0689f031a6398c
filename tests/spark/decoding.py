"""Keys and values for tests, written by Confluent's own serializers, and the decoded results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from cleanerd.spark.values.decode_options import Decode
from cleanerd.spark.values.decoding import BatchDecoder, resolved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.spark.registry_server import RegistryServer

TOPIC = "orders"
VALUE = SerializationContext(TOPIC, MessageField.VALUE)
KEY = SerializationContext(TOPIC, MessageField.KEY)


def client(registry: RegistryServer) -> SchemaRegistryClient:
    """Confluent's."""
    return SchemaRegistryClient({"url": registry.url})


def avro(registry: RegistryServer, schema: Any, *data: Any, context: SerializationContext = VALUE) -> list[bytes]:
    """``data`` encoded by Confluent's serializer, which registers ``schema``."""
    write = AvroSerializer(client(registry), schema if isinstance(schema, str) else json.dumps(schema))
    return [write(each, context) for each in data]


def record(*fields: Any, name: str = "Order", **more: Any) -> dict[str, Any]:
    """An Avro record; a field is name and type, or a full definition."""
    return {
        "type": "record",
        "name": name,
        "fields": [each if isinstance(each, dict) else {"name": each[0], "type": each[1]} for each in fields],
        **more,
    }


def batch_of(where: RegistryServer | str, values: Sequence[bytes | None], **decode: Any) -> pa.RecordBatch:
    """A column ``values`` of the topic ``orders``, with its decoded values."""
    message = Decode(where if isinstance(where, str) else where.url, **decode)
    (out,) = BatchDecoder(resolved(message, [TOPIC])).batches(
        [pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])]
    )
    out.validate(full=True)
    return out


def decoded(
    where: RegistryServer | str, values: Sequence[bytes | None], **decode: Any
) -> tuple[pa.DataType, list[Any], list[str | None]]:
    """Type, values and reasons of a column of ``values`` of the topic ``orders``."""
    out = batch_of(where, values, **decode)
    column = out.column("value_decoded")
    return column.type, column.to_pylist(), out.column("value_error").to_pylist()
