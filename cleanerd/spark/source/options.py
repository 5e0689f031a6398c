"""Parses the options of the data source. Refuses unknown ones."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cleanerd.config.topic_config import INTERNAL_TOPICS
from cleanerd.errors import ConfigError
from cleanerd.format.names import TopicPartition, parse_topic_partition_dir
from cleanerd.spark.source.columns import HEADERS, KAFKA, TYPES
from cleanerd.spark.strategies import Strategies
from cleanerd.spark.values.decode_options import EXTRA, FRAMINGS, LIMIT, Decode

COMMITTED: Final = "committed"
ALL: Final = "all"
RAW: Final = "raw"
LATEST: Final = "latest"
VIEWS: Final = (COMMITTED, ALL, RAW, LATEST)

HIGH_WATERMARK: Final = "hw"
LOG_END: Final = "end"
FAIL: Final = "fail"
SKIP: Final = "skip"

EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1
"""The offset of "latest" in the JSON of Spark's ``kafka`` source."""

SPLIT_BYTES: Final = 128 * 1024 * 1024
MAP_BYTES: Final = 128 * 1024 * 1024

_KNOWN: Final = (
    "path", "paths", "topics", "topicsPattern", "partitions", "subscribe", "subscribePattern", "assign",
    "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "columns", "includeHeaders", "view", "bound",
    "splitBytes", "minPartitions", "onCorruption", "strategy", "strategies", "tombstones", "mapBytes",
    "maxBytesPerTrigger", "maxFilesPerTrigger", "maxOffsetsPerTrigger", "failOnDataLoss", "decode", "schemas",
    "valueSchema", "keySchema", "valueMessage", "keyMessage", "framing", "undecodedLimit",
)  # fmt: skip
_SPARKS: Final = frozenset({"serialization.format"})
"""Options that Spark itself may add."""
_SELECTIONS: Final = ("topics", "topicsPattern", "partitions", "subscribe", "subscribePattern", "assign")
_TABLE_OPTION: Final = "option."
"""The prefix that Spark's catalog adds to names in ``OPTIONS (...)`` of a table."""

_SIZE: Final = re.compile(r"([0-9]{1,15})\s*(|k|m|g|t)(?:i?b)?", re.ASCII | re.IGNORECASE)
_UNIT: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@dataclass(frozen=True, slots=True)
class OffsetLimit:
    """Where to begin, or to end (exclusive). Used in this order: ``time_ms``, ``times_ms``, ``offsets``, ``word``.

    ``offsets`` may contain -2 for the first and -1 for the end. ``otherwise_latest``: a time that no record has reached
    is the end instead of an error. ``is_default``: no option sets it.
    """

    word: str
    offsets: Mapping[TopicPartition, int] | None = None
    times_ms: Mapping[TopicPartition, int] | None = None
    time_ms: int | None = None
    otherwise_latest: bool = False
    is_default: bool = False

    def require_all(self, names: Collection[TopicPartition]) -> None:
        """Require an entry for exactly the partitions ``names``, as ``kafka`` does.

        Raises:
            ConfigError: one is missing, or one is not in ``names``.
        """
        limits_text = None if self.time_ms is not None else self.times_ms if self.times_ms is not None else self.offsets
        if limits_text is None:
            return
        for name in sorted(set(limits_text) ^ set(names)):
            what = "is missing" if name in names else "names a partition that is not read"
            raise ConfigError(
                f"startingOffsets or endingOffsets: {what}",
                where=str(name),
                hint="name all partitions, or none of them",
            )


@dataclass(frozen=True, slots=True)
class Options:
    """What to read and how. ``topics``, ``pattern`` and ``partitions`` None: not set; without any: everything.

    ``internal``: read Kafka's internal topics even if they are not named (SP-1).
    """

    paths: tuple[str, ...]
    columns: tuple[str, ...]
    topics: frozenset[str] | None = None
    pattern: str | None = None
    partitions: frozenset[TopicPartition] | None = None
    view: str = COMMITTED
    bound: str = HIGH_WATERMARK
    starting: OffsetLimit = field(default_factory=lambda: OffsetLimit("earliest"))
    ending: OffsetLimit = field(default_factory=lambda: OffsetLimit("latest"))
    split_bytes: int = SPLIT_BYTES
    skip_damage: bool = False
    strategies: Strategies = field(default_factory=Strategies)
    tombstones: bool = False
    map_bytes: int = MAP_BYTES
    max_bytes: int | None = None
    max_files: int | None = None
    max_offsets: int | None = None
    fail_on_data_loss: bool = True
    decode: Decode | None = None
    min_partitions: int | None = None
    internal: bool = False

    def includes(self, name: TopicPartition) -> bool:
        """Whether a partition is read. An internal topic has to be named: a pattern does not match it, as in Kafka."""
        if self.partitions is not None:
            return name in self.partitions
        if self.topics is not None:
            return name.topic in self.topics
        if name.topic in INTERNAL_TOPICS and not self.internal:
            return False
        return self.pattern is None or re.fullmatch(self.pattern, name.topic) is not None


def options_from(given: Mapping[str, str]) -> Options:
    """The options as Spark gives them, by name in any case.

    Raises:
        ConfigError: one is unknown, has an invalid value, or contradicts another.
    """
    texts = _Texts(given)
    view = texts.one_of("view", VIEWS)
    named = [name for name in _SELECTIONS if texts.get(name) is not None]
    if len(named) > 1:
        raise ConfigError(f"give one of the options {' and '.join(named)}, not several", where="kafka-segments")
    topics = texts.split_list("topics") or texts.split_list("subscribe")
    decode = _decode(texts)
    return Options(
        paths=_paths(texts),
        columns=_columns(texts, decode),
        topics=None if topics is None else frozenset(topics),
        pattern=_pattern(texts, "topicsPattern") or _pattern(texts, "subscribePattern"),
        partitions=_assigned(texts) or _partitions(texts.split_list("partitions")),
        view=view,
        bound=texts.one_of("bound", (HIGH_WATERMARK, LOG_END), LOG_END if view == RAW else HIGH_WATERMARK),
        starting=_edge(texts, "starting", "earliest"),
        ending=_edge(texts, "ending", "latest"),
        split_bytes=texts.size("splitBytes") or SPLIT_BYTES,
        min_partitions=texts.count("minPartitions"),
        skip_damage=texts.one_of("onCorruption", (FAIL, SKIP)) == SKIP,
        strategies=Strategies.of(texts.json("strategies") or {}, texts.get("strategy")),
        tombstones=texts.flag("tombstones", default=False),
        map_bytes=texts.size("mapBytes") or MAP_BYTES,
        max_bytes=texts.size("maxBytesPerTrigger"),
        max_files=texts.size("maxFilesPerTrigger"),
        max_offsets=texts.size("maxOffsetsPerTrigger"),
        fail_on_data_loss=texts.flag("failOnDataLoss", default=True),
        decode=decode,
    )


class _Texts:
    """The texts by name, in any case."""

    def __init__(self, given: Mapping[str, str]) -> None:
        known = {name.lower(): name for name in _KNOWN}
        self._texts: dict[str, str] = {}
        for name, text in (_of_table(given) if "provider" in given else given).items():
            if name.lower() in _SPARKS:
                continue
            if name.lower() not in known:
                raise ConfigError(
                    f"no such option: {name}", where="kafka-segments", hint=f"there are {', '.join(_KNOWN)}"
                )
            self._texts[known[name.lower()]] = str(text)

    def get(self, name: str) -> str | None:
        return self._texts.get(name)

    def split_list(self, name: str) -> list[str] | None:
        text = self.get(name)
        if text is None:
            return None
        words = [word.strip() for word in text.split(",") if word.strip()]
        if not words:
            raise _bad(name, text, "names nothing")
        return words

    def one_of(self, name: str, values: tuple[str, ...], default: str | None = None) -> str:
        text = self.get(name)
        if text is None:
            return default or values[0]
        if text.strip().lower() not in values:
            raise _bad(name, text, f"is none of {', '.join(values)}")
        return text.strip().lower()

    def flag(self, name: str, *, default: bool) -> bool:
        return self.one_of(name, ("true", "false"), "true" if default else "false") == "true"

    def size(self, name: str) -> int | None:
        """A number, also in the form ``64m``."""
        text = self.get(name)
        if text is None:
            return None
        parsed = _SIZE.fullmatch(text.strip())
        if parsed is None or int(parsed[1]) < 1:
            raise _bad(name, text, "is not a size (134217728, 128m)")
        return int(parsed[1]) * _UNIT[parsed[2].lower()]

    def count(self, name: str) -> int | None:
        text = self.get(name)
        if text is not None and not (text.strip().isdecimal() and int(text)):
            raise _bad(name, text, "is not a number above 0")
        return None if text is None else int(text)

    def json(self, name: str) -> dict[str, Any] | None:
        text = self.get(name)
        if text is None:
            return None
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _bad(name, text, f"is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise _bad(name, text, "is not a JSON object")
        return found

    def number(self, name: str) -> int | None:
        text = self.get(name)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            raise _bad(name, text, "is not a number of milliseconds") from None


def _paths(texts: _Texts) -> tuple[str, ...]:
    """The paths of ``load("a")`` or ``load(["a", "b"])``."""
    text = texts.get("paths")
    several: list[Any] = []
    if text is not None:
        try:
            several = json.loads(text)
        except (ValueError, RecursionError):
            several = []
        if not isinstance(several, list) or not several:
            raise _bad("paths", text, "is not a JSON array of paths")
    one = texts.get("path")
    paths = tuple(str(each) for each in ([one] if one else []) + several)
    if not paths:
        hint = '.load("/var/lib/kafka/data"); a table: CREATE TABLE ... OPTIONS (path ...) without a list of columns'
        raise ConfigError("no path", where="kafka-segments", hint=hint)
    return paths


def _decode(texts: _Texts) -> Decode | None:
    """The decoding, or None."""
    columns = texts.split_list("decode")
    further = ("schemas", "valueSchema", "keySchema", "valueMessage", "keyMessage", "framing", "undecodedLimit")
    if columns is None:
        for name in further:
            if texts.get(name) is not None:
                raise ConfigError(f"option {name} without decode", where="kafka-segments", hint="decode=value")
        return None
    schemas, limit = texts.get("schemas"), texts.get("undecodedLimit")
    if schemas is None:
        raise ConfigError(
            "option decode without schemas", where="kafka-segments", hint="a schema registry's URL, or a directory"
        )
    if limit is not None and not limit.strip().isdecimal():
        raise _bad("undecodedLimit", limit, "is not a number")
    return Decode(
        schemas,
        tuple(columns),
        value_schema=texts.get("valueSchema"),
        key_schema=texts.get("keySchema"),
        value_message=texts.get("valueMessage"),
        key_message=texts.get("keyMessage"),
        framing=texts.one_of("framing", FRAMINGS),
        limit=LIMIT if limit is None else int(limit),
    )


def _columns(texts: _Texts, decode: Decode | None) -> tuple[str, ...]:
    wanted = texts.split_list("columns")
    with_headers = texts.flag("includeHeaders", default=True)
    if wanted is None:
        plain = tuple(name for name in KAFKA if with_headers or name != HEADERS)
        return plain if decode is None else (*plain, *decode.names)
    return checked_columns(wanted, decode)


def checked_columns(wanted: list[str], decode: Decode | None = None) -> tuple[str, ...]:
    """``wanted`` with the data source's spelling of names.

    Raises:
        ConfigError: one is unknown, or occurs twice.
    """
    known = [*TYPES, *(() if decode is None else decode.names)]
    names = {name.lower(): name for name in known}
    for each in wanted:
        if each.lower() not in names:
            hint = f"there are {', '.join(known)}"
            if each.lower() in EXTRA:
                hint = f"it needs the option decode={EXTRA[each.lower()]}"
            raise ConfigError(f"no such column: {each}", where="kafka-segments", hint=hint)
    found = tuple(names[each.lower()] for each in wanted)
    if len(set(found)) != len(found):
        raise ConfigError("a column is requested twice", where="kafka-segments", hint=", ".join(wanted))
    return found


def _of_table(given: Mapping[str, str]) -> dict[str, str]:
    """The options of ``CREATE TABLE ... OPTIONS (...)``, without the table properties that Spark's catalog adds."""
    found = {name[len(_TABLE_OPTION) :]: text for name, text in given.items() if name.lower().startswith(_TABLE_OPTION)}
    return {**found, "path": given["location"]} if "location" in given else found


def _pattern(texts: _Texts, name: str) -> str | None:
    text = texts.get(name)
    if text is None:
        return None
    try:
        re.compile(text.strip())
    except re.error as error:
        raise _bad(name, text, f"is not a regular expression: {error}") from None
    if not text.strip():
        raise _bad(name, text, "names nothing")
    return text.strip()


def _assigned(texts: _Texts) -> frozenset[TopicPartition] | None:
    """``{"orders": [0, 1]}``, as for ``kafka``."""
    found = texts.json("assign")
    if found is None:
        return None
    numbers = [
        (topic, number) for topic, each in found.items() for number in (each if isinstance(each, list) else [-1])
    ]
    if not numbers or any(type(number) is not int or number < 0 for _, number in numbers):
        raise _bad("assign", texts.get("assign") or "", 'is not of the form {"orders": [0, 1]}')
    return frozenset(TopicPartition(topic, number) for topic, number in numbers)


def _partitions(words: list[str] | None) -> frozenset[TopicPartition] | None:
    if words is None:
        return None
    found = {word: parse_topic_partition_dir(word) for word in words}
    for word, name in found.items():
        if name is None:
            raise _bad("partitions", word, "is not of the form TOPIC-N")
    return frozenset(name for name in found.values() if name is not None)


def _edge(texts: _Texts, which: str, default: str) -> OffsetLimit:
    strategy = texts.one_of("startingOffsetsByTimestampStrategy", ("error", "latest"))
    text = texts.get(f"{which}Offsets")
    word, offsets = default, None
    if text is not None and text.strip().lower() in ("earliest", "latest"):
        word = text.strip().lower()
    elif text is not None:
        offsets = _by_partition(texts, f"{which}Offsets", least=EARLIEST_OFFSET)
    if which == "ending" and (word == "earliest" or EARLIEST_OFFSET in (offsets or {}).values()):
        raise _bad("endingOffsets", text or "", "ends where the log begins")
    names = (f"{which}Offsets", f"{which}OffsetsByTimestamp", f"{which}Timestamp")
    return OffsetLimit(
        is_default=all(texts.get(name) is None for name in names),
        word=word,
        offsets=offsets,
        times_ms=_by_partition(texts, f"{which}OffsetsByTimestamp", least=0),
        time_ms=texts.number(f"{which}Timestamp"),
        otherwise_latest=which == "ending" or strategy == "latest",
    )


def _by_partition(texts: _Texts, name: str, *, least: int) -> dict[TopicPartition, int] | None:
    """``{"topic": {"0": 23, "1": -2}}``."""
    found = texts.json(name)
    if found is None:
        return None
    result = {}
    for topic, numbers in found.items():
        for number, value in numbers.items() if isinstance(numbers, dict) else [("", None)]:
            if not number.isdecimal() or type(value) is not int or not least <= value < 2**63:
                raise _bad(name, texts.get(name) or "", 'is not of the form {"topic": {"0": 23, "1": -2}}')
            result[TopicPartition(topic, int(number))] = value
    return result


def require_batch(options: Options) -> None:
    """Refuse a batch that would read nothing, as ``kafka`` does: one that starts at the end, or above its own end.

    Raises:
        ConfigError: it would.
    """
    start, end = options.starting, options.ending
    if start.time_ms is not None or start.times_ms is not None:
        return
    offsets = start.offsets or {}
    if LATEST_OFFSET in offsets.values() or (start.offsets is None and start.word == "latest"):
        raise ConfigError("a batch that starts at the end reads nothing", where="startingOffsets", hint="leave it out")
    if end.time_ms is None and end.times_ms is None:
        for name, offset in offsets.items():
            if 0 <= (end.offsets or {}).get(name, LATEST_OFFSET) < offset:
                raise ConfigError(f"{name} starts at {offset}, above its end", where="startingOffsets, endingOffsets")


def require_streamable(options: Options) -> None:
    """Refuse options that a stream does not support.

    Raises:
        ConfigError: an end, the view ``latest``, or two limits.
    """
    if not options.ending.is_default:
        hint = "leave out endingOffsets, endingTimestamp and endingOffsetsByTimestamp"
        raise ConfigError("a stream has no end", where="kafka-segments", hint=hint)
    if options.view == LATEST:
        raise ConfigError("a stream has no latest state", where="option view", hint="committed, all or raw")
    if sum(each is not None for each in (options.max_bytes, options.max_files, options.max_offsets)) > 1:
        raise ConfigError("one limit at most", where="maxBytesPerTrigger, maxFilesPerTrigger, maxOffsetsPerTrigger")


def _bad(name: str, text: str, why: str) -> ConfigError:
    return ConfigError(f"{text!r} {why}", where=f"option {name}")
