"""Java's properties format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.errors import CorruptionError
from cleanerd.format.properties import read_properties
from tests.support.format_bytes import refusal

# Every expectation was checked against java.util.Properties of JDK 17.
CASES = [
    (b"a=b", {"a": "b"}),
    (b"a = b \n", {"a": "b "}),  # trailing blanks belong to the value
    (b"a:b\nc d\ne\n", {"a": "b", "c": "d", "e": ""}),
    (b"a = : b", {"a": ": b"}),
    (b"a  :  b", {"a": "b"}),
    (b"# c\n! d\n  # e\n\n \t\f\n", {}),
    (b"#x\\\na=1", {"a": "1"}),  # a comment is never continued
    (b"a=1\\\n   2\\\r\n\t3\n", {"a": "123"}),
    (b"a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),  # an even number of backslashes is not a continuation
    (b"a=1\\", {"a": "1"}),
    (b"a=1\\\n\nb=2", {"a": "1", "b": "2"}),  # continued by an empty line
    (b"a=1\\\n#2", {"a": "1#2"}),
    (b"\\\n#a=1\nb=2", {"b": "2"}),  # no logical line has begun, so it is a comment
    (b"a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
    (b"a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
    (b"a=\\u0041\\u00e4", {"a": "Aä"}),
    (b"a=\\ud83d\\ude00", {"a": "\U0001f600"}),
    (b"a=\xe4", {"a": "ä"}),  # ISO 8859-1
    (b"a=1\ra=2", {"a": "2"}),
    (b"a=b=c", {"a": "b=c"}),
    (b"=b", {"": "b"}),
    (b"a=1\n\\", {"a": "1", "": ""}),
    (b"a=1\n\\\n", {"a": "1", "": ""}),
    (b"a=1\n\\\r\n", {"a": "1"}),
    (b"sasl.jaas.config=x \\\n  y;", {"sasl.jaas.config": "x y;"}),
]


@pytest.mark.parametrize(("data", "expected"), CASES)
def test_as_the_jdk_reads(data: bytes, expected: dict[str, str]) -> None:
    assert read_properties(data) == expected


@pytest.mark.parametrize("data", [b"x=1\na=\\u12", b"x=1\na=\\u12g4", b"x=1\na\\u=b"])
def test_bad_unicode_escape(data: bytes) -> None:
    with pytest.raises(CorruptionError, match=r"^f at byte 4: line 2: .*four hexadecimal digits"):
        read_properties(data, "f")


@given(st.binary(max_size=80) | st.text("a=: \t\\\n\r#u0041", max_size=60).map(str.encode))
def test_garbage(data: bytes) -> None:
    if refusal(read_properties, data, "f") is None:
        properties = read_properties(data)
        " ".join([*properties, *properties.values()]).encode("utf-8")  # no lone surrogate is returned
