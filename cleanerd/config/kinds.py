"""The kinds of values in settings: how text is parsed, how values are written, and what is allowed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BeforeValidator

from cleanerd.config import strategy_keys
from cleanerd.config.kafka_values import LONG_MAX, BooleanRule, ChoiceRule, HeaderNameRule, PolicyRule, RatioRule
from cleanerd.config.units import SIZE_HINT, format_size, format_time, parse_size, parse_time, time_hint
from cleanerd.policy.canary import CANARY_HINT, CanaryBudget, parse_canary
from cleanerd.policy.windows import WINDOWS_HINT, Windows, parse_windows

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.config.kafka_values import ValueRule


@dataclass(frozen=True, slots=True)
class ValueKind:
    """How values of one kind are described, and written so that they read back the same.

    ``writes_none``: "no value" can be written and read. ``is_list``: a list of values.
    """

    valid: str
    write: Callable[[Any], str] = str
    writes_none: bool = False
    is_list: bool = False


_VERSION_HINT: Final = "auto, or a release such as 3.9"
_RESERVE_HINT: Final = f"auto, or {SIZE_HINT}"


def _path(text: str) -> Path:
    if not text.strip() or "\0" in text:
        raise ValueError("a path")
    return Path(os.path.expanduser(text.strip()))


def _reserve(text: str) -> int | None:
    if text.strip() == "auto":
        return None
    try:
        return parse_size(text)
    except ValueError:
        raise ValueError(_RESERVE_HINT) from None


def _version(text: str) -> tuple[int, int] | None:
    if text.strip() == "auto":
        return None
    major, dot, minor = text.strip().partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal() and len(major) < 4 and len(minor) < 4):
        raise ValueError(_VERSION_HINT)
    return int(major), int(minor)


def _write_version(value: tuple[int, int] | None) -> str:
    return "auto" if value is None else f"{value[0]}.{value[1]}"


def write_policy(value: frozenset[str]) -> str:
    """The policies in Kafka's form."""
    return ",".join(sorted(value))


def _write_reserve(value: int | None) -> str:
    return "auto" if value is None else format_size(value)


def _time_kind(unit_ms: int) -> ValueKind:
    return ValueKind(time_hint(unit_ms), partial(format_time, unit_ms=unit_ms))


def _read_retention(text: str, unit_ms: int) -> int:
    value = parse_time(text, unit_ms)
    if value == 0:
        raise ValueError(_retention_hint(unit_ms))
    return max(value, -1)


def _retention_hint(unit_ms: int) -> str:
    return f"{time_hint(unit_ms)}, 1 or more, or -1 (indefinitely)"


def _retention_kind(unit_ms: int) -> ValueKind:
    return ValueKind(_retention_hint(unit_ms), partial(format_time, unit_ms=unit_ms))


def _topics(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",")) if text.strip() else ()
    if not all(_TOPIC_GLOB.fullmatch(word) for word in words):
        raise ValueError(_TOPICS_HINT)
    return words


def write_topics(value: tuple[str, ...]) -> str:
    """The list in the form that is read."""
    return ",".join(value)


def _servers(text: str) -> str:
    words = [word.strip() for word in text.split(",")]
    if not all(_SERVER.fullmatch(word) and int(word.rpartition(":")[2]) <= 65535 for word in words):
        raise ValueError(_SERVERS_HINT)
    return ",".join(words)


_SERVER: Final = re.compile(r"([a-zA-Z0-9._-]+|\[[0-9a-fA-F:.%]+\]):[0-9]{1,5}", re.ASCII)
_SERVERS_HINT: Final = "a list of host:port"

_TOPIC_GLOB: Final = re.compile(r"[a-zA-Z0-9._*?!\[\]-]{1,249}", re.ASCII)
_TOPICS_HINT: Final = "a list of topic names or globs"


def _paths(text: str) -> tuple[Path, ...]:
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    if not all(words) or "\0" in text:
        raise ValueError(_PATHS_HINT)
    return tuple(Path(os.path.expanduser(word)) for word in words)


def _write_paths(value: tuple[Path, ...]) -> str:
    return ",".join(map(str, value))


_PATHS_HINT: Final = "a list of paths"


def _rate(text: str) -> int | None:
    """Bytes per second. Kafka's default is the largest double, and its values may have a fraction."""
    if text.strip() == "unlimited":
        return None
    try:
        value = parse_size(text)
    except ValueError:
        if not _DOUBLE.fullmatch(text.strip()):
            raise ValueError(_RATE_HINT) from None
        number = float(text)
        if number >= LONG_MAX:
            return None
        value = int(number)
    if value < 1:
        raise ValueError(_RATE_HINT)
    return None if value == LONG_MAX else value


def _write_rate(value: int | None) -> str:
    return "unlimited" if value is None else format_size(value)


_DOUBLE: Final = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?([eE]\+?[0-9]{1,3})?", re.ASCII)
_RATE_HINT: Final = f"unlimited, or {SIZE_HINT}, a second; at least 1"


def _listen(text: str) -> tuple[str, int] | None:
    if text.strip() == "off":
        return None
    if not _SERVER.fullmatch(text.strip()) or int(text.rpartition(":")[2]) > 65535:
        raise ValueError(_LISTEN_HINT)
    host, _, port = text.strip().rpartition(":")
    return host, int(port)


def _write_listen(value: tuple[str, int] | None) -> str:
    return "off" if value is None else f"{value[0]}:{value[1]}"


_LISTEN_HINT: Final = "off, or host:port"


def _hosts(text: str) -> tuple[str, ...]:
    words = [word.strip().lower().removesuffix(".") for word in text.split(",")] if text.strip() else []
    if not all(_HOST.fullmatch(word) for word in words):
        raise ValueError(_HOSTS_HINT)
    return tuple(dict.fromkeys(words))


_HOST: Final = re.compile(r"(?!.{254})[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*", re.ASCII)
_HOSTS_HINT: Final = "a list of host names, without ports"


def _peers(text: str) -> tuple[tuple[int, str], ...] | int:
    if re.fullmatch(r" *[1-9][0-9]{0,4} *", text, re.ASCII) and int(text) <= 65535:
        return int(text)
    words = [word.strip().partition("=") for word in text.split(",")] if text.strip() else []
    found = {broker.strip(): server.strip() for broker, _, server in words}
    is_right = all(re.fullmatch(r"[0-9]{1,10}", broker, re.ASCII) for broker in found)
    is_right &= all(_SERVER.fullmatch(server) and int(server.rpartition(":")[2]) <= 65535 for server in found.values())
    if not is_right or len(found) < len(words):
        raise ValueError(_PEERS_HINT)
    return tuple((int(broker), server) for broker, server in found.items())


def _write_peers(value: tuple[tuple[int, str], ...] | int) -> str:
    if isinstance(value, int):
        return str(value)
    return ",".join(f"{broker}={server}" for broker, server in value)


_PEERS_HINT: Final = "a list of ID=host:port, each broker id once, or a port of all brokers"


def _count(text: str) -> int:
    """As in Kafka: neither ``1_0`` nor ``1.0`` is a whole number."""
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", text.strip(), re.ASCII):
        raise ValueError(_COUNT_HINT)
    return int(text)


_COUNT_HINT: Final = "a whole number"


def _keys(text: str) -> int | None:
    word = text.strip()
    if word == "never":
        return None
    if not re.fullmatch(r"[0-9]{1,18}", word, re.ASCII) or int(word) < 1:
        raise ValueError(_KEYS_HINT)
    return int(word)


def _write_keys(value: int | None) -> str:
    return "never" if value is None else str(value)


_KEYS_HINT: Final = "never, or a number of keys; at least 1"


def _master(text: str) -> str:
    if not re.fullmatch(r"[!-~]+", text.strip()):
        raise ValueError(_MASTER_HINT)
    return text.strip()


_MASTER_HINT: Final = "a Spark master: local[*], local[N], spark://HOST:PORT, yarn, k8s://HOST:PORT"


def _write_bool(value: bool) -> str:  # noqa: FBT001 - a writer of values takes the value
    return "true" if value else "false"


def _bool(text: str) -> bool:
    if text.strip().lower() not in {"true", "false"}:
        raise ValueError(_BOOL_HINT)
    return text.strip().lower() == "true"


_BOOL_HINT: Final = "true or false"

_STRATEGY: Final = ChoiceRule(strategy_keys.STRATEGIES, empty="offset")

Size = Annotated[int, BeforeValidator(parse_size), ValueKind(SIZE_HINT, format_size)]
Milliseconds = Annotated[int, BeforeValidator(parse_time), _time_kind(1)]
Retention = Annotated[int, BeforeValidator(partial(_read_retention, unit_ms=1)), _retention_kind(1)]
RetentionMinutes = Annotated[int, BeforeValidator(partial(_read_retention, unit_ms=60_000)), _retention_kind(60_000)]
RetentionHours = Annotated[
    int, BeforeValidator(partial(_read_retention, unit_ms=3_600_000)), _retention_kind(3_600_000)
]
Count = Annotated[int, BeforeValidator(_count), ValueKind(_COUNT_HINT)]
Fraction = Annotated[float, BeforeValidator(RatioRule().read), ValueKind(RatioRule().valid)]
CleanupPolicy = Annotated[
    frozenset[str], BeforeValidator(PolicyRule().read), ValueKind(PolicyRule().valid, write_policy, is_list=True)
]
Strategy = Annotated[str, BeforeValidator(_STRATEGY.read), ValueKind(_STRATEGY.valid)]
Header = Annotated[str, BeforeValidator(HeaderNameRule().read), ValueKind(HeaderNameRule().valid)]
Topics = Annotated[tuple[str, ...], BeforeValidator(_topics), ValueKind(_TOPICS_HINT, write_topics, is_list=True)]
Servers = Annotated[str, BeforeValidator(_servers), ValueKind(_SERVERS_HINT, is_list=True)]
Paths = Annotated[tuple[Path, ...], BeforeValidator(_paths), ValueKind(_PATHS_HINT, _write_paths, is_list=True)]
Rate = Annotated[int | None, BeforeValidator(_rate), ValueKind(_RATE_HINT, _write_rate, writes_none=True)]
Listen = Annotated[
    tuple[str, int] | None, BeforeValidator(_listen), ValueKind(_LISTEN_HINT, _write_listen, writes_none=True)
]
Hosts = Annotated[tuple[str, ...], BeforeValidator(_hosts), ValueKind(_HOSTS_HINT, write_topics, is_list=True)]
Peers = Annotated[
    tuple[tuple[int, str], ...] | int, BeforeValidator(_peers), ValueKind(_PEERS_HINT, _write_peers, is_list=True)
]
Flag = Annotated[bool, BeforeValidator(_bool), ValueKind(_BOOL_HINT, _write_bool)]
KeyThreshold = Annotated[int | None, BeforeValidator(_keys), ValueKind(_KEYS_HINT, _write_keys, writes_none=True)]
Master = Annotated[str, BeforeValidator(_master), ValueKind(_MASTER_HINT)]
WindowsValue = Annotated[Windows, BeforeValidator(parse_windows), ValueKind(WINDOWS_HINT, str)]
Canary = Annotated[
    CanaryBudget | None,
    BeforeValidator(parse_canary),
    ValueKind(CANARY_HINT, lambda value: "off" if value is None else str(value), writes_none=True),
]
PathValue = Annotated[Path, BeforeValidator(_path), ValueKind("a path")]
Version = Annotated[
    tuple[int, int] | None, BeforeValidator(_version), ValueKind(_VERSION_HINT, _write_version, writes_none=True)
]
Reserve = Annotated[int | None, BeforeValidator(_reserve), ValueKind(_RESERVE_HINT, _write_reserve, writes_none=True)]


def as_kind(rule: ValueRule) -> Any:
    """The kind of a key whose text is parsed as in Kafka."""
    if isinstance(rule, ChoiceRule):
        return Annotated[str, BeforeValidator(rule.read), ValueKind(rule.valid)]
    return {PolicyRule: CleanupPolicy, RatioRule: Fraction, BooleanRule: Flag, HeaderNameRule: Header}[type(rule)]
