"""Checkpoint files (F-9, F-11)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.errors import CorruptionError
from cleanerd.format.checkpoint import (
    EpochStart,
    offset_in_checkpoint,
    read_epoch_checkpoint,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from cleanerd.format.names import TopicPartition
from tests.support.format_bytes import refusal

TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=20)
ENTRIES = st.dictionaries(
    st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1)), st.integers(-(2**63), 2**63 - 1), max_size=20
)


@given(ENTRIES)
def test_round_trip(entries: dict[TopicPartition, int]) -> None:
    assert read_offset_checkpoint(write_offset_checkpoint(entries), "f") == entries


@given(ENTRIES, TOPICS, st.integers(0, 3))
def test_one_partition_of_many(entries: dict[TopicPartition, int], topic: str, partition: int) -> None:
    """F-11: a query for one partition returns the same as the whole file; a name that ends in another one differs."""
    data = write_offset_checkpoint(entries)
    for place in (*entries, TopicPartition(topic, partition), TopicPartition(f"x{topic}", partition)):
        assert offset_in_checkpoint(data, "f", place) == entries.get(place)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"0\n2\na 1 5\na 1 6\n", 6),  # the later one counts, as in Kafka
        (b"0\r\n1\r\na 1 5\r\n", 5),
        (b"0\n1\na  1\t5\n", 5),
        (b"0\n1\na 01 +5\n", 5),
        (b"0\n1\na 01 5\n", 5),
        (b"0\n1\na 1 5", 5),
        (b"0\n2\nba 1 7\na 11 8\n", None),
        (b"", None),
    ],
)
def test_one_partition_however_it_is_written(data: bytes, expected: int | None) -> None:
    """F-11: lines that Kafka reads but would not write are also read by the strict way for one partition."""
    place = TopicPartition("a", 1)
    assert offset_in_checkpoint(data, "f", place) == read_offset_checkpoint(data, "f").get(place) == expected


@pytest.mark.parametrize("data", [b"0\n1\na 1 x\n", b"0\n2\na 1 5 6\nb 1\n", b"0\n2\na 1 5\n", b"1\n1\na 1 5\n"])
def test_one_partition_of_a_damaged_file(data: bytes) -> None:
    """F-11: its own line, the version and the count have to be right."""
    with pytest.raises(CorruptionError) as one:
        offset_in_checkpoint(data, "f", TopicPartition("a", 1))
    with pytest.raises(CorruptionError) as all_of_it:
        read_offset_checkpoint(data, "f")
    assert str(one.value) == str(all_of_it.value)


def test_the_written_form() -> None:
    """F-11: version, count, single spaces, a line feed after every line including the last."""
    entries = {TopicPartition("b", 0): 7, TopicPartition("a", 10): 1, TopicPartition("a", 9): 2}
    assert write_offset_checkpoint(entries) == b"0\n3\na 9 2\na 10 1\nb 0 7\n"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", {}),  # the broker creates the file empty
        (b"0\n0\n", {}),
        (b"0\n", {}),  # a version alone counts as an empty file
        (b"0\n0", {}),
        (b"0\n1\na 0 5", {TopicPartition("a", 0): 5}),  # the last line's end may be missing
        (b"0\r\n1\r\na 0 5\r\n", {TopicPartition("a", 0): 5}),
        (b"0\n1\na \t\x0b 0\f5 \t\n", {TopicPartition("a", 0): 5}),  # runs of white space, some at the end
        (b"0\n1\na 0 +5\n", {TopicPartition("a", 0): 5}),
        (b"0\n1\na 2147483647 -9223372036854775808\n", {TopicPartition("a", 2147483647): -(2**63)}),
        (b"0\n2\na 0 5\na 0 6\n", {TopicPartition("a", 0): 6}),
    ],
)
def test_files_that_kafka_accepts(data: bytes, expected: dict[TopicPartition, int]) -> None:
    """F-11."""
    assert read_offset_checkpoint(data, "f") == expected


@pytest.mark.parametrize(
    ("data", "line", "position"),
    [
        (b"1\n0\n", 1, 0),
        (b"\n0\n", 1, 0),
        (b" 0\n0\n", 1, 0),
        (b"x\n0\n", 1, 0),
        (b"0\nx\n", 2, 2),
        (b"0\n2\na 0 5\n", 2, 2),  # fewer entries than the count
        (b"0\n0\na 0 5\n", 2, 2),  # more entries than the count
        (b"0\n-1\n", 2, 2),
        (b"0\n1\na 0\n", 3, 4),
        (b"0\n1\na 0 5 6\n", 3, 4),
        (b"0\n2\na 0 5 6\n7 8\n", 3, 4),  # as many words as two entries have
        (b"0\n1\na 0 5\nb x\n", 4, 10),  # one entry, as counted, and another line
        (b"0\n2\na 0 9223372036854775808\na 0 5\n", 3, 4),  # a later line does not hide it
        (b"0\n1\n a 0 5\n", 3, 4),  # leading white space is a field of its own
        (b"0\n1\na\xc2\xa00 5\n", 3, 4),  # a no-break space is not a separator
        (b"0\n2\na 0 5\n\n", 4, 10),
        (b"0\n2\n\xc3\xa4 0 5\nb 0 x\n", 4, 11),  # positions are bytes, not characters
        (b"0\n1\na -1 5\n", 3, 4),
        (b"0\n1\na 2147483648 5\n", 3, 4),
        (b"0\n1\na 0 9223372036854775808\n", 3, 4),
        (b"0\n1\na 0 -9223372036854775809\n", 3, 4),
        (b"0\n1\na 0 1_0\n", 3, 4),  # Python would accept it
        (b"0\n1\na 0 \xd9\xa5\n", 3, 4),
    ],
)
def test_files_that_kafka_refuses(data: bytes, line: int, position: int) -> None:
    """F-11: refused, and the message names file, line and byte."""
    with pytest.raises(CorruptionError, match=rf"^the-file at byte {position}: line {line}: ") as caught:
        read_offset_checkpoint(data, "the-file")
    assert caught.value.position == position


def test_not_text() -> None:
    with pytest.raises(CorruptionError, match="at byte 5: not UTF-8"):
        read_offset_checkpoint(b"0\n1\na\xff 0 5\n", "f")


def test_leader_epochs() -> None:
    """F-9: two fields, in the file's order."""
    assert read_epoch_checkpoint(b"0\n2\n3 0\n7 120\n", "f") == [EpochStart(3, 0), EpochStart(7, 120)]
    assert read_epoch_checkpoint(b"", "f") == []


@pytest.mark.parametrize("data", [b"0\n1\n3\n", b"0\n1\na 0 5\n", b"0\n1\n-1 5\n", b"0\n1\n1 -5\n", b"0\n2\n1 5\n"])
def test_bad_leader_epochs(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        read_epoch_checkpoint(data, "f")


@given(st.binary(max_size=100) | st.text("0123 \n\ta-", max_size=60).map(str.encode))
def test_garbage(data: bytes) -> None:
    """Whatever the bytes are: a result or a CorruptionError."""
    for read in (read_offset_checkpoint, read_epoch_checkpoint):
        error = refusal(read, data, "f")
        assert error is None or error.where == "f"
