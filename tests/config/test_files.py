"""Accepted forms of a settings file, and the messages about others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.config.loading import LISTS, NO_TOML, TWICE, load, refused

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_files_that_are_none(tmp_path: Path, toml: Path) -> None:
    assert "No such file" in refused(files=(tmp_path / "missing.toml",))
    toml.write_text("a = \n")
    assert "not a TOML file" in refused(files=(toml,))
    assert "line 1" in refused(files=(toml,))
    toml.write_bytes(b"a = '\xff'")
    assert "no UTF-8 at byte 5" in refused(files=(toml,))
    toml.write_text("# " + "x" * (1 << 20))
    assert "larger than 1 MiB" in refused(files=(toml,))
    toml.write_text("a" + ".a" * 5000 + " = 1")
    assert str(toml) in refused(files=(toml,))


def test_a_file_with_a_byte_order_mark(toml: Path) -> None:
    """Editors of Windows write one; it was "Invalid statement (at line 1, column 1)", about a line that looks right."""
    toml.write_bytes(b'\xef\xbb\xbf"log.segment.bytes" = 100\r\n"log.segment.byte" = 5\r\n')
    assert refused(files=(toml,)).startswith(f"{toml}:2: unknown key log.segment.byte (")
    toml.write_bytes(b'\xef\xbb\xbf"log.segment.bytes" = 100\r\n')
    assert load(files=(toml,)).daemon.log_segment_bytes == 100


@pytest.mark.parametrize(("document", "messages", "hint"), NO_TOML)
def test_invalid_toml_shows_what_to_do(toml: Path, document: str, messages: str, hint: str) -> None:
    """A torn file, or one with a key twice, got the advice to quote text.

    And int() refuses thousands of digits with a ValueError that is not TOML's: it was not caught anywhere.
    """
    toml.write_text(document)
    message = refused(files=(toml,))
    assert message.startswith(f"{toml}: not a TOML file: ")
    assert messages in message
    assert hint in message


@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "1" * 100, "-" + "1" * 100])
def test_a_number_of_any_length_is_a_value_like_any_other(toml: Path, number: str) -> None:
    toml.write_text(f'"log.cleaner.threads" = {number}\n')
    assert refused(files=(toml,)).startswith(f"{toml}:1: log.cleaner.threads is '")


@pytest.mark.parametrize(("document", "message"), LISTS)
def test_a_list_for_a_single_value(toml: Path, document: str, message: str) -> None:
    """The items were joined with a comma: the state directory was "/a,/b"."""
    toml.write_text(document)
    assert message in refused(files=(toml,))


def test_a_list_for_several_values(toml: Path) -> None:
    toml.write_text(
        '"cleanerd.log.dirs" = ["/a", "/b"]\n"cleanerd.topics.exclude" = ["x-*"]\n"cleanerd.http.hosts" = ["h", "i"]\n'
        '"bootstrap.servers" = ["a:1", "b:2"]\n"log.cleanup.policy" = ["compact", "delete"]\n'
    )
    daemon = load(files=(toml,)).daemon
    assert (len(daemon.cleanerd_log_dirs), daemon.cleanerd_topics_exclude) == (2, ("x-*",))
    assert (daemon.cleanerd_http_hosts, daemon.bootstrap_servers) == (("h", "i"), "a:1,b:2")
    assert daemon.log_cleanup_policy == {"compact", "delete"}


@pytest.mark.parametrize(("document", "line", "key", "other"), TWICE)
def test_a_key_in_two_notations(toml: Path, document: str, line: int, key: str, other: str) -> None:
    """TOML allows both, and the last one won silently: the mode below, in a generated file that observes."""
    toml.write_text(document)
    assert refused(files=(toml,)) == f"{toml}:{line}: {key} is set twice, here and as {other}"


def test_the_same_key_of_two_topics_or_two_files_is_set_once_each(tmp_path: Path) -> None:
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text('"log.segment.bytes" = 100\n[topics.a]\n"cleanup.policy" = "compact"\n')
    second.write_text('log.segment.bytes = 200\n[topics.b]\n"cleanup.policy" = "compact"\n')
    assert load(files=(first, second)).daemon.log_segment_bytes == 200
