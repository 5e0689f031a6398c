"""KRaft metadata records (U-23, U-24)."""

import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.errors import CorruptionError, UnsupportedLogError
from cleanerd.format.config_keys import ALLOWED_KEYS, HIDDEN
from cleanerd.format.metadata import read_metadata_record
from cleanerd.format.metadata_records import (
    LAYOUTS,
    RECORD_NAMES,
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    OtherRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
    UnregisterBrokerRecord,
    record_name,
)
from tests.support.format_bytes import (
    ABORT,
    BEGIN,
    END,
    compact,
    config,
    feature,
    metadata,
    refusal,
    remove_topic,
    topic,
    unsigned_varint,
)

ID = uuid.UUID("a5d28745-c72d-408c-a6a4-cddade53e6b1")


def broker(version: int) -> bytes:
    """RegisterBrokerRecord of node 7 with one end point, one feature, and log directories as a tagged field."""
    fields = struct.pack(">i", 7) + (b"\x00" if version >= 2 else b"") + ID.bytes + struct.pack(">q", 99)
    fields += b"\x02" + compact("PLAINTEXT") + compact("host") + struct.pack(">HH", 9092, 0) + b"\x00"
    fields += b"\x02" + compact("metadata.version") + struct.pack(">hh", 1, 21) + b"\x00"
    fields += compact(None) + b"\x01" + (b"\x00" if version >= 1 else b"")
    tags = b"\x01\x00" + unsigned_varint(17) + b"\x02" + ID.bytes if version >= 3 else b"\x00"
    return metadata(0, fields, version=version, tags=tags)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (topic("orders", ID), TopicRecord("orders", ID)),
        (topic("ü" * 100, ID), TopicRecord("ü" * 100, ID)),  # a length that takes two bytes
        (remove_topic(ID), RemoveTopicRecord(ID)),
        (config(2, "orders", "cleanup.policy", "compact"), ConfigRecord(2, "orders", "cleanup.policy", "compact")),
        (config(4, "", "log.cleaner.threads", ""), ConfigRecord(ResourceType.BROKER, "", "log.cleaner.threads", "")),
        (config(2, "orders", "cleanup.policy", None), ConfigRecord(2, "orders", "cleanup.policy", None)),
        (feature("metadata.version", 21), FeatureLevelRecord("metadata.version", 21)),
        (metadata(1, struct.pack(">iq", 7, 99)), UnregisterBrokerRecord(7, 99)),
        (BEGIN, BeginTransactionRecord()),
        (metadata(23, tags=b"\x01\x00\x05\x05name"), BeginTransactionRecord()),
        (END, EndTransactionRecord()),
        (ABORT, AbortTransactionRecord()),
        (metadata(7, b"whatever a fence is"), OtherRecord(7, 0)),
        (metadata(99, b"\xff", version=7), OtherRecord(99, 7)),
    ],
    ids=str,
)
def test_records(value: bytes, expected: MetadataRecord) -> None:
    """Frame version, api key, version, fields, tagged fields; unknown ones are skipped."""
    assert read_metadata_record(value) == expected


# Written by Kafka 4.3.1's own serializer (MetadataRecordSerde); names, reasons and log directories are tagged fields.
FROM_KAFKA = [
    (
        "01170001000404776879",
        BeginTransactionRecord(),
    ),
    (
        "01170000",
        BeginTransactionRecord(),
    ),
    (
        "01180000",
        EndTransactionRecord(),
    ),
    (
        "0119000100080862656361757365",
        AbortTransactionRecord(),
    ),
    (
        (
            "01000000000007a5d28745c72d408ca6a4cddade53e6b10000000000000063020a504c41494e5445585405686f"
            "73749c4100000002116d657461646174612e76657273696f6e0001001e000372300100"
        ),
        RegisterBrokerRecord(7, ID, 99, {"metadata.version": (1, 30)}),
    ),
    (
        (
            "01000100000007a5d28745c72d408ca6a4cddade53e6b10000000000000063020a504c41494e5445585405686f"
            "73749c4100000002116d657461646174612e76657273696f6e0001001e00037231010100"
        ),
        RegisterBrokerRecord(7, ID, 99, {"metadata.version": (1, 30)}),
    ),
    (
        (
            "0100020000000700a5d28745c72d408ca6a4cddade53e6b10000000000000063020a504c41494e544558540568"
            "6f73749c4100000002116d657461646174612e76657273696f6e0001001e00037232010100"
        ),
        RegisterBrokerRecord(7, ID, 99, {"metadata.version": (1, 30)}),
    ),
    (
        (
            "0100030000000700a5d28745c72d408ca6a4cddade53e6b10000000000000063020a504c41494e544558540568"
            "6f73749c4100000002116d657461646174612e76657273696f6e0001001e00037233010101001102a5d28745c7"
            "2d408ca6a4cddade53e6b1"
        ),
        RegisterBrokerRecord(7, ID, 99, {"metadata.version": (1, 30)}),
    ),
    (
        (
            "0100040000000700a5d28745c72d408ca6a4cddade53e6b10000000000000063020a504c41494e544558540568"
            "6f73749c4100000002116d657461646174612e76657273696f6e0001001e00037234010102001102a5d28745c7"
            "2d408ca6a4cddade53e6b1011102a5d28745c72d408ca6a4cddade53e6b1"
        ),
        RegisterBrokerRecord(7, ID, 99, {"metadata.version": (1, 30)}),
    ),
    (
        "01010000000007000000000000006300",
        UnregisterBrokerRecord(7, 99),
    ),
    (
        "010c000266000300",
        FeatureLevelRecord("f", 3),
    ),
    (
        "01040002076f72646572730d726574656e74696f6e2e6d730000",
        ConfigRecord(2, "orders", "retention.ms", None),
    ),
    (
        "01040002076f72646572730d726574656e74696f6e2e6d730100",
        ConfigRecord(2, "orders", "retention.ms", ""),
    ),
    (
        "010200076f7264657273a5d28745c72d408ca6a4cddade53e6b100",
        TopicRecord("orders", ID),
    ),
    (
        "010900a5d28745c72d408ca6a4cddade53e6b100",
        RemoveTopicRecord(ID),
    ),
]


@pytest.mark.parametrize(("hexadecimal", "expected"), FROM_KAFKA)
def test_records_from_kafkas_serialiser(hexadecimal: str, expected: MetadataRecord) -> None:
    """Every layout in every version; truncated anywhere it is damaged."""
    value = bytes.fromhex(hexadecimal)
    assert read_metadata_record(value) == expected
    for size in range(len(value)):
        assert refusal(read_metadata_record, value[:size]) is not None


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_register_broker(version: int) -> None:
    """Versions 1 and 2 added one flag each, in different places."""
    expected = RegisterBrokerRecord(7, ID, 99, {"metadata.version": (1, 21)})
    assert read_metadata_record(broker(version)) == expected


def test_a_newer_registration_is_skipped() -> None:
    """It is only informative, so an unknown version must not stop a cleaning."""
    assert read_metadata_record(metadata(0, b"new", version=5)) == OtherRecord(0, 5)


@pytest.mark.parametrize("api_key", [key for key, layout in LAYOUTS.items() if layout.essential])
def test_newer_versions_of_relevant_records_are_refused(api_key: int) -> None:
    """No guesses about topics and settings."""
    with pytest.raises(UnsupportedLogError, match=f"^f: {RECORD_NAMES[api_key]} version 1 is not known, only up to 0"):
        read_metadata_record(metadata(api_key, b"new", version=1), where="f")


@pytest.mark.parametrize(
    "key",
    [
        "sasl.jaas.config",
        "listener.name.external.ssl.keystore.password",
        "ssl.keystore.password",
        "delegation.token.secret.key",
        "log.cleaner.threads.x",
        "Cleanup.policy",
        " cleanup.policy",
        "cleanup.policy\n",
    ],
)
def test_values_outside_the_allow_list_are_dropped(key: str) -> None:
    """U-24: only listed keys, by exact name; other values are not even kept."""
    record = read_metadata_record(config(4, "1", key, "hunter2"))
    assert record == ConfigRecord(4, "1", key, HIDDEN)
    assert "hunter2" not in repr(record)
    assert isinstance(record, ConfigRecord)
    assert record.hidden


def test_the_removal_of_a_hidden_setting_is_visible() -> None:
    assert read_metadata_record(config(4, "1", "sasl.jaas.config", None)) == ConfigRecord(
        4, "1", "sasl.jaas.config", None
    )


def test_the_allow_list_names_no_credential() -> None:
    """U-24."""
    for part in ("password", "sasl", "ssl", "secret", "token", "jaas", "listener", "key.", "keystore"):
        assert not [key for key in ALLOWED_KEYS if part in key]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "without a value"),
        (b"", "cut off"),
        (metadata(2, frame_version=0), "frame version 0 is unknown"),
        (metadata(2, frame_version=2), "frame version 2 is unknown"),
        (topic("orders", ID)[:-1], "cut off"),
        (topic("orders", ID)[:-2], "16 bytes announced, 15 left"),
        (topic("orders", ID) + b"x", "1 bytes left at the end of a TopicRecord"),
        (metadata(2, b"\x00" + ID.bytes), "length -1"),  # a null name
        (metadata(2, b"\x7f" + ID.bytes), "length 126 with 17 bytes left"),
        (metadata(2, b"\x02\xff" + ID.bytes), "not UTF-8"),
        (metadata(4, b"\x02\x00"), "length -1"),
        (metadata(23, tags=b"\x01\x00\x7fx"), "127 bytes announced, 1 left"),
        (metadata(23, tags=b"\xff\xff\xff\xff\x0f"), "cut off"),  # four billion tagged fields
    ],
    ids=str,
)
def test_corrupt(value: bytes | None, problem: str) -> None:
    with pytest.raises(CorruptionError, match=f"^f at byte 70: .*{problem}"):
        read_metadata_record(value, where="f", position=70)


@given(st.integers(0, 30), st.binary(max_size=60), st.binary(max_size=6))
def test_garbage(api_key: int, fields: bytes, tags: bytes) -> None:
    """A result or a CorruptionError, quickly."""
    refusal(read_metadata_record, metadata(api_key, fields, tags=tags))


def test_names() -> None:
    assert record_name(OtherRecord(11, 0)) == "UserScramCredentialRecord"
    assert record_name(OtherRecord(99, 0)) == "api key 99"
    assert record_name(TopicRecord("t", ID)) == "TopicRecord"
    # A class and its api key have one name.
    for key, value in ((0, broker(0)), (2, topic("t", ID)), (9, remove_topic(ID)), (12, feature("f", 1)), (25, ABORT)):
        assert record_name(read_metadata_record(value)) == RECORD_NAMES[key]
