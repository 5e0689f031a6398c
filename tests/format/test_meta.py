"""meta.properties and partition.metadata (F-5, F-11)."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.errors import CorruptionError
from cleanerd.format.meta import MetaProperties, read_meta_properties, read_partition_metadata
from tests.support.format_bytes import refusal

ID = uuid.UUID("32453738-4541-3537-3035-324434333642")
TEXT = "MkU3OEVBNTcwNTJENDM2Qg"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            f"#\n#Sat Nov 21\nnode.id=3\ndirectory.id={TEXT}\nversion=1\ncluster.id=c\n",
            MetaProperties(1, "c", 3, ID),
        ),
        ("version=1\nnode.id=0\ncluster.id=c\n", MetaProperties(1, "c", 0, None)),
        ("version=0\nbroker.id=2\ncluster.id=c\n", MetaProperties(0, "c", 2, None)),
        ("version=0 \nbroker.id=2147483647\n", MetaProperties(0, None, 2147483647, None)),
        ("version=0\nbroker.id=-2147483648\n", MetaProperties(0, None, -2147483648, None)),
        ("version=0\n", MetaProperties(0, None, None, None)),
        ("version=0\nbroker.id=2\nnode.id=9\n", MetaProperties(0, None, 2, None)),
    ],
)
def test_meta_properties(data: str, expected: MetaProperties) -> None:
    """F-11: version 0 says broker.id, version 1 node.id."""
    assert read_meta_properties(data.encode(), "f") == expected


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("version=2\nnode.id=1\ncluster.id=c", "version 2 is unknown"),
        ("version=one", "version is 'one'"),
        ("", "names neither a cluster nor a node"),
        ("\0" * 90, "names neither a cluster nor a node"),
        ("version=0\nbroker.id=1 ", "broker.id is '1 '"),
        ("version=1\ncluster.id=c", "node.id is missing"),
        ("version=1\nbroker.id=1\ncluster.id=c", "node.id is missing"),
        ("version=1\nnode.id=1", "cluster.id is missing"),
        ("version=1\nnode.id=2147483648\ncluster.id=c", "node.id is '2147483648'"),
        ("version=1\nnode.id=1\ncluster.id=c\ndirectory.id=zz", "directory.id: 'zz' is not a base64 UUID"),
    ],
)
def test_bad_meta_properties(data: str, problem: str) -> None:
    with pytest.raises(CorruptionError, match=f"^f: .*{problem}"):
        read_meta_properties(data.encode(), "f")


@pytest.mark.parametrize("end", ["", "\n"])
def test_partition_metadata(end: str) -> None:
    """F-5: Kafka writes no line feed at the end."""
    assert read_partition_metadata(f"version: 0\ntopic_id: {TEXT}{end}".encode(), "f") == ID


@pytest.mark.parametrize(
    ("data", "line", "position"),
    [
        ("", 1, 0),
        ("version: 1\ntopic_id: " + TEXT, 1, 0),
        ("version:0\ntopic_id: " + TEXT, 1, 0),  # Kafka splits at a colon and white space
        ("version: 0\x0btopic_id: " + TEXT, 1, 0),  # no line end for Java
        ("version: 0\n", 2, 11),
        ("version: 0\ntopic_id: zz", 2, 11),
        ("version: 0\nid: " + TEXT, 2, 11),
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 2, 11),
    ],
)
def test_bad_partition_metadata(data: str, line: int, position: int) -> None:
    with pytest.raises(CorruptionError, match=f"^f at byte {position}: line {line}: "):
        read_partition_metadata(data.encode(), "f")


@given(st.binary(max_size=60) | st.text("version: 0\ntopic_id=1", max_size=50).map(str.encode))
def test_garbage(data: bytes) -> None:
    for read in (read_meta_properties, read_partition_metadata):
        error = refusal(read, data, "f")
        assert error is None or error.where == "f"
