"""``sasl.jaas.config`` as Kafka's own ``JaasConfig`` reads it (each row was run in 4.3.1)."""

from __future__ import annotations

import pytest

from cleanerd.format.jaas import read_jaas

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (r'username="alice" password="s3 cr\"et";', {"username": "alice", "password": 's3 cr"et'}),
        ("username='alice' password='x';", {"username": "alice", "password": "x"}),
        ("username=alice password=x-y_z$1;", {"username": "alice", "password": "x-y_z$1"}),
        (r'username=alice password="x\n\t\101A\\";', {"username": "alice", "password": "x\n\tAA\\"}),
        (r'username="a" password="\8\1";', {"username": "a", "password": "8\x01"}),
        ('username=alice /* hi */ password="x"; // end', {"username": "alice", "password": "x"}),
        ('username = alice password = "" ;', {"username": "alice", "password": ""}),
        ('username="a" password="//x";', {"username": "a", "password": "//x"}),
        ('username="ünï" password="ö";', {"username": "ünï", "password": "ö"}),
        ('username="a" username="b";', {"username": "b"}),
        (";", {}),
    ],
)
def test_as_kafka_reads_it(text: str, options: dict[str, str]) -> None:
    entry = read_jaas(f"{MODULE} Required {text}")
    assert (entry.module, dict(entry.options)) == (MODULE, options)
    assert "alice" not in repr(entry), "nothing of it is shown"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" ", "no login module"),
        (f"{MODULE} required username=alice password=hunter2", "semicolon"),
        (f"{MODULE} required username=alice password=12345;", "option password"),
        (f"{MODULE} required username=alice password=;", "option password"),
        (f"{MODULE} required username=1a password=c;", "option username"),
        (f"{MODULE} required username=a#b password=hunter2;", "an option"),
        (f"{MODULE} required username=a/b password=hunter2;", "semicolon"),
        (f'{MODULE} required username="hunter2', "semicolon"),
        (f"{MODULE} needed username=a;", "comes one of"),
        (f"{MODULE} required; a.B required password=hunter2;", "2 login modules"),
        (f"{MODULE} required username=a;;", "no login module"),
    ],
)
def test_entries_that_kafka_refuses(text: str, message: str) -> None:
    """The error for a wrong entry contains none of its text, which may be the password."""
    with pytest.raises(ValueError, match=message) as raised:
        read_jaas(text)
    assert "hunter2" not in str(raised.value)
