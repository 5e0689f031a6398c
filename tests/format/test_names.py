"""Names on disk (F-5, F-12)."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.format.names import (
    TopicPartition,
    file_name,
    parse_checkpoint_name,
    parse_file_name,
    parse_topic_partition_dir,
    uuid_from_base64,
    uuid_to_base64,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000000.log", (0, ".log")),
        ("09223372036854775807.txnindex", (2**63 - 1, ".txnindex")),
        ("00000000000000000042.index.swap", (42, ".index.swap")),
        ("00000000000000000042.snapshot.deleted", (42, ".snapshot.deleted")),
        ("00000000000000000042.timeindex.cleaned", (42, ".timeindex.cleaned")),
        ("09223372036854775808.log", None),  # above the largest offset
        ("0000000000000000042.log", None),  # 19 digits
        ("00000000000000000042.log.swap.deleted", None),
        ("00000000000000000042.log.bak", None),
        ("00000000000000000042.checkpoint", None),
        ("00000000000000000042-0000000001.checkpoint", None),
        ("x0000000000000000042.log", None),
        ("\u0660" * 20 + ".log", None),  # digits, but not ASCII ones
        ("00000000000000000042.log\n", None),
    ],
)
def test_file_names(name: str, expected: tuple[int, str] | None) -> None:
    """F-5, F-12: 20 digits, a known suffix, one state suffix at most."""
    assert parse_file_name(name) == expected
    if expected is not None:
        assert file_name(*expected) == name


@pytest.mark.parametrize("base", [-1, 2**63])
def test_file_name_of_no_offset(base: int) -> None:
    with pytest.raises(ValueError, match="not a base offset"):
        file_name(base, ".log")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", TopicPartition("orders", 0)),
        ("a-b-12", TopicPartition("a-b", 12)),  # the digits after the last dash
        ("v1.2-3-4", TopicPartition("v1.2-3", 4)),
        ("orders--3", TopicPartition("orders-", 3)),
        ("x" * 249 + "-0", TopicPartition("x" * 249, 0)),
        ("x" * 250 + "-0", None),
        ("orders-2147483647", TopicPartition("orders", 2147483647)),
        ("orders-2147483648", None),
        ("orders-01", None),  # would be looked up as orders-1
        ("orders", None),
        ("-0", None),
        ("..-0", None),
        ("remote-log-index-cache", None),
        ("orders-0.1fb0a2b1e2924f43913b2a54029b2ca0-delete", None),
        ("orders-0.1fb0a2b1e2924f43913b2a54029b2ca0-future", None),
        ("orders-0.1fb0a2b1e2924f43913b2a54029b2ca0-stray", None),
        ("orders\n-0", None),
    ],
)
def test_partition_directories(name: str, expected: TopicPartition | None) -> None:
    """F-5: only current logs, whose name ``str`` reproduces."""
    assert parse_topic_partition_dir(name) == expected
    assert expected is None or str(expected) == name


def test_partitions_sort_by_number() -> None:
    assert sorted([TopicPartition("a", 10), TopicPartition("a", 9)])[0].partition == 9


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000061-0000000001.checkpoint", (61, 1)),
        ("09223372036854775807-2147483647.checkpoint", (2**63 - 1, 2**31 - 1)),
        ("09223372036854775808-2147483647.checkpoint", None),
        ("09223372036854775807-2147483648.checkpoint", None),
        ("00000000000000000061-0000000001.checkpoint.part", None),
        ("00000000000000000061-0000000001.checkpoint.deleted", None),
        ("bootstrap.checkpoint", None),
    ],
)
def test_kraft_snapshot_names(name: str, expected: tuple[int, int] | None) -> None:
    """U-23: an unfinished (``.part``) or deleted snapshot does not count."""
    assert parse_checkpoint_name(name) == expected


def test_uuid_as_kafka_prints_it() -> None:
    """The pair is from a broker: its listing and the bytes in its metadata log."""
    assert uuid_to_base64(uuid.UUID("a5d28745-c72d-408c-a6a4-cddade53e6b1")) == "pdKHRcctQIympM3a3lPmsQ"


@given(st.uuids())
def test_uuid_round_trip(value: uuid.UUID) -> None:
    assert uuid_from_base64(uuid_to_base64(value)) == value


@pytest.mark.parametrize(
    "text", ["", "pdKHRcctQIympM3a3lPms", "pdKHRcctQIympM3a3lPm+Q", "pdKHRcctQIym pM3a3lPmsQ", "x" * 23]
)
def test_malformed_uuid(text: str) -> None:
    """A lenient base64 decoder would silently drop ``+`` and blanks."""
    with pytest.raises(ValueError, match="not a base64 UUID"):
        uuid_from_base64(text)
