"""Sizes and times: exact, reversible, and refused if ambiguous."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.config.units import SIZE_UNITS, TIME_UNITS_MS, format_size, format_time, parse_size, parse_time

LONGS = st.integers(-1, 2**63 - 1)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("128MiB", 134_217_728),
        ("64 MiB", 67_108_864),
        (" 1GiB ", 1_073_741_824),
        ("1.5KiB", 1536),
        ("0.5KiB", 512),
        ("7B", 7),
        ("1048588", 1_048_588),
        ("-1", -1),
    ],
)
def test_sizes(text: str, size_bytes: int) -> None:
    """Sizes take 128MiB; plain numbers are bytes."""
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text",
    ["128MB", "128mib", "128M", "1,5GiB", "GiB", "", "1e6", "0x10", "1_000", "0.3B", "\u0661KiB", "9" * 21, "- 1"],
)
def test_invalid_sizes(text: str) -> None:
    """128MB is refused, not guessed: many use it for 128 * 1024 * 1024."""
    with pytest.raises(ValueError, match="a size such as 128MiB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "unit_ms", "value"),
    [
        ("15s", 1, 15_000),
        ("15", 1, 15),
        ("250ms", 1, 250),
        ("1.5h", 1, 5_400_000),
        ("2m", 1, 120_000),
        ("7d", 3_600_000, 168),
        ("168", 3_600_000, 168),
        ("2h", 60_000, 120),
        ("90m", 60_000, 90),
        ("-1", 3_600_000, -1),
    ],
)
def test_times(text: str, unit_ms: int, value: int) -> None:
    """Plain numbers keep Kafka's unit - 15 of a key in hours are 15 hours, not 15 ms."""
    assert parse_time(text, unit_ms) == value


@pytest.mark.parametrize(
    ("text", "unit_ms"), [("90m", 3_600_000), ("0.5ms", 1), ("15 sec", 1), ("15S", 1), ("1h30m", 1)]
)
def test_invalid_times(text: str, unit_ms: int) -> None:
    """Half an hour is not a whole number of hours; rounding would change the operator's value."""
    with pytest.raises(ValueError, match="a time such as 15s"):
        parse_time(text, unit_ms)


@given(LONGS)
def test_sizes_read_back(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == size_bytes


@given(LONGS, st.sampled_from([1, 60_000, 3_600_000]))
def test_times_read_back(value: int, unit_ms: int) -> None:
    assert parse_time(format_time(value, unit_ms), unit_ms) == value


@given(st.integers(0, 2**40), st.sampled_from(sorted(SIZE_UNITS)))
def test_size_is_number_times_unit(number: int, unit: str) -> None:
    assert parse_size(f"{number}{unit}") == number * SIZE_UNITS[unit]


@given(st.integers(0, 2**40), st.sampled_from(sorted(TIME_UNITS_MS)))
def test_time_is_number_times_unit(number: int, unit: str) -> None:
    assert parse_time(f"{number}{unit}") == number * TIME_UNITS_MS[unit]


@given(st.text(max_size=12))
def test_any_text_is_a_number_or_a_value_error(text: str) -> None:
    for parse in (parse_size, parse_time):
        try:
            assert isinstance(parse(text), int)
        except ValueError as error:
            assert "such as" in str(error)  # noqa: PT017 - either answer is right, but none other


@pytest.mark.parametrize(("size_bytes", "text"), [(134_217_728, "128MiB"), (1536, "1536"), (0, "0"), (2**40, "1TiB")])
def test_sizes_are_written_in_the_largest_whole_unit(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text


@pytest.mark.parametrize(
    ("value", "unit_ms", "text"),
    [(86_400_000, 1, "1d"), (168, 3_600_000, "7d"), (1500, 1, "1500"), (2**63 - 1, 1, str(2**63 - 1)), (-1, 1, "-1")],
)
def test_times_are_written_in_the_largest_whole_unit(value: int, unit_ms: int, text: str) -> None:
    assert format_time(value, unit_ms) == text
