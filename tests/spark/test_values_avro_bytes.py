"""Avro: bytes that are not a value of their schema give a reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.errors import ConfigError
from tests.spark.avro_values import HOSTILE
from tests.spark.decoding import decoded, record

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.registry_server import RegistryServer


def varint(number: int) -> bytes:
    """As Avro has a long."""
    number = (number << 1) ^ (number >> 63)
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


@pytest.mark.parametrize(
    "data",
    [
        varint(2**62),
        varint(-1),
        varint(-(2**63)),
        b"\xff" * 40,
        varint(0) + varint(2**62),
        varint(0) + varint(-(2**62)) + varint(2**62),
        varint(0) + varint(0) + varint(2**60) + varint(2**60),
        varint(0) + varint(0) + varint(1) + varint(1) + b"\xff" + varint(5),
        varint(2) + b"\xff\xfe" + varint(0) + varint(0),
        b"",
    ],
)
def test_impossible_lengths(tmp_path: Path, data: bytes) -> None:
    """Huge and negative lengths, endless numbers and bytes that are not text are reasons, at once, in little memory."""
    (tmp_path / "orders-value.avsc").write_text(json.dumps(HOSTILE))
    _, values, reasons = decoded(str(tmp_path), [data], framing="none")
    assert values == [None]
    assert reasons[0]


def test_endless_schemas(registry: RegistryServer, tmp_path: Path) -> None:
    """A schema of many levels, or of a few types that name each other very often, is refused and not followed."""
    deep: Any = "long"
    for _ in range(150):
        deep = {"type": "array", "items": deep}
    wide = [record(("a", "int"), name="R0")]
    wide += [record(("a", f"R{at}"), ("b", f"R{at}"), ("c", f"R{at}"), name=f"R{at + 1}") for at in range(40)]
    for schema, why in ((deep, "levels"), (record(*[(f"f{at}", each) for at, each in enumerate(wide)]), "fields")):
        (tmp_path / "orders-value.avsc").write_text(json.dumps(schema))
        with pytest.raises(ConfigError, match=why):
            decoded(str(tmp_path), [])
        number = registry.register("other", json.dumps(schema))
        registry.register("orders-value", '"long"')
        _, values, reasons = decoded(registry, [b"\x00" + number.to_bytes(4, "big") + b"\x00" * 30])
        assert values == [None]
        assert reasons[0] is not None
        assert why in reasons[0]
    (tmp_path / "orders-value.avsc").write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="not JSON"):
        decoded(str(tmp_path), [])
