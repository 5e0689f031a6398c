"""A schema with every type of Avro, a value of it, and a schema for hostile bytes."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from decimal import Decimal

from tests.spark.decoding import record

EVERYTHING = record(
    ("flag", "boolean"),
    ("small", "int"),
    ("large", "long"),
    ("single", "float"),
    ("double", "double"),
    ("text", "string"),
    ("raw", "bytes"),
    ("hash", {"type": "fixed", "name": "Hash", "size": 4}),
    ("state", {"type": "enum", "name": "State", "symbols": ["OPEN", "CLOSED"]}),
    ("note", ["null", "string"]),
    ("either", ["null", "long", "string"]),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
    ("rate", {"type": "fixed", "name": "Rate", "size": 8, "logicalType": "decimal", "precision": 18, "scale": 4}),
    ("id", {"type": "string", "logicalType": "uuid"}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("exactly", {"type": "long", "logicalType": "timestamp-micros"}),
    ("here", {"type": "long", "logicalType": "local-timestamp-millis"}),
    ("lines", {"type": "array", "items": record(("sku", "string"), ("count", "int"), name="Line")}),
    ("tags", {"type": "map", "values": "long"}),
    ("first", ["null", "Line"]),
)  # fmt: skip
AT = datetime(2024, 2, 29, 12, 30, 15, 250_000, UTC)
EXACTLY = datetime(2024, 2, 29, 12, 30, 15, 250_001, UTC)
HERE = datetime(2024, 2, 29, 12, 30, 15, 250_000)  # noqa: DTZ001 - local is what it is
ID = uuid.UUID(int=7)
ORDER = {
    "flag": True, "small": -7, "large": 2**40, "single": 0.5, "double": 1e300, "text": "grün", "raw": b"\x00\xff",
    "hash": b"abcd", "state": "CLOSED", "note": None, "either": "text", "price": Decimal("-12345.67"),
    "rate": Decimal("99.0001"), "id": ID, "day": date(1969, 12, 31), "at": AT, "exactly": EXACTLY, "here": HERE,
    "lines": [{"sku": "a", "count": 1}, {"sku": "b", "count": 2}], "tags": {"x": 1}, "first": {"sku": "c", "count": 3},
}  # fmt: skip
HOSTILE = record(
    ("text", "string"), ("many", {"type": "array", "items": "long"}), ("map", {"type": "map", "values": "bytes"}),
    name="H",
)  # fmt: skip
