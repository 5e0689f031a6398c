"""The agent's answers, validated, as frozen values (agent/README.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, PlainValidator, ValidationError

from cleanerd.broker.agent_client import AgentClient, AgentLostError
from cleanerd.broker.agent_pool import PLACES
from cleanerd.format.adapters import Long, Offset, adapter_of
from cleanerd.format.names import MAX_OFFSET, TopicPartition, uuid_from_base64
from cleanerd.fsio.json_text import line_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

# Ignore fields that a later agent adds.
_STRICT: Final = ConfigDict(strict=True, extra="ignore")


class BrokerSegment(NamedTuple):
    """A segment as the broker knows it: base offset, bytes, modification time in whole milliseconds, inode."""

    base: Offset
    size: Offset
    mtime_ms: Long
    inode: Long

    def to_json(self) -> dict[str, int]:
        return {"base": self.base, "size": self.size, "ino": self.inode, "mtime_ms": self.mtime_ms}


def _segment(row: object) -> BrokerSegment:
    """``[base, size, mtime_ms, inode]``; raises ValueError."""
    if not isinstance(row, list) or list(map(type, row)) != [int] * 4:
        raise ValueError("a segment is four whole numbers")
    segment = BrokerSegment(*row)
    if not (0 <= segment.base <= MAX_OFFSET and 0 <= segment.size < 2**63):
        raise ValueError("a segment's numbers are out of range")
    return segment


def _topic_id(text: str | None) -> str | None:
    """Kafka's base64 form, unchanged; raises ValueError."""
    if text is not None:
        uuid_from_base64(text)
    return text


@dataclass(frozen=True, slots=True)
class LockHolds:
    """How long an agent has held locks of one kind since it was loaded, as a histogram.

    All times are in microseconds. ``counts[i]``: holds up to ``bounds_us[i]`` and longer than the bound before; the
    last count is for longer ones.
    """

    bounds_us: list[Offset]
    counts: list[Offset]
    sum_us: Offset
    longest_us: Offset

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class CleanerState:
    """Kafka's own cleaner (OP-13): dead threads, milliseconds since its last check for work, uncleanable partitions.

    ``uncleanable_names``: the first of these (``topic-0``). None if the broker does not report it.
    """

    dead_threads: Offset | None = None
    since_last_run_ms: Long | None = None
    uncleanable: Offset | None = None
    uncleanable_names: list[str] = field(default_factory=list)

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """``info``: the agent, and whether it can work. ``ready``: the broker's start is far enough.

    ``version``: the broker's release, None if unknown. ``self_test``, the agent's swap in a log of its own: passed,
    failed or not_run, empty from an agent without one; ``self_test_detail``: what was checked, or why not.
    ``transport``: unix or loopback; agents that do not report it know only the first. ``pauses`` and
    ``failed_resumes``: partitions (``topic-0``) whose cleaner the agent pauses, and could not resume.
    ``gives_up_log_dirs``: it can make the broker take a log directory offline if a swap stops half-way (A-24); older
    agents cannot. ``places``: how many connections it serves. ``held``: how long it has held the broker's locks, by
    kind: ``log``, ``cleaner`` (A-36); empty from agents that do not measure it. ``kafka_cleaner``: None without a
    cleaner, and from older agents.
    """

    protocol: int
    build: str
    ready: bool
    capable: bool
    version: str | None
    pid: int
    log_dirs: list[str]
    cleaner: bool
    missing: list[str] = field(default_factory=list)
    why_incapable: str = ""
    version_known: bool = True
    self_test: str = ""
    self_test_detail: str = ""
    java: str = ""
    loaded: str = ""
    found_via: str | None = None
    node_id: int | None = None
    socket: str = ""
    transport: str = "unix"
    pauses: list[str] = field(default_factory=list)
    failed_resumes: list[str] = field(default_factory=list)
    gives_up_log_dirs: bool = False
    swaps: int = 0
    accepting_swaps: bool = True
    places: int = PLACES
    held: dict[str, LockHolds] = field(default_factory=dict)
    kafka_cleaner: CleanerState | None = None
    errors: list[str] = field(default_factory=list)

    __pydantic_config__ = _STRICT

    @property
    def kafka(self) -> str:
        """The broker's release in words."""
        return f"Kafka {self.version}" if self.version else "a Kafka that does not report its release"

    @property
    def connection_text(self) -> str:
        words = {"unix": "a unix socket", "loopback": "TCP on 127.0.0.1, each side with a proof"}
        return words.get(self.transport, self.transport)

    @property
    def self_test_text(self) -> str:
        """The result of the agent's self-test, in words."""
        words = {"passed": "passed", "failed": "FAILED", "not_run": "could not be made"}
        detail = f": {self.self_test_detail}" if self.self_test_detail else ""
        return words[self.self_test] + detail if self.self_test in words else "this agent makes none"

    @property
    def incapable(self) -> str:
        """Why the agent cannot swap in this broker, in the agent's words; empty if it can.

        Older agents give less detail.
        """
        if self.capable:
            return ""
        lacking = ", ".join(self.missing[:3]) or "this agent does not know the release"
        return self.why_incapable or f"{self.kafka} does not fit: {lacking}"


@dataclass(frozen=True, slots=True)
class ListedLog:
    """An entry of ``logs``. ``dir``: the partition's directory as the broker names it."""

    topic: str
    partition: Offset
    dir: str
    policy: str

    __pydantic_config__ = _STRICT

    @property
    def name(self) -> TopicPartition:
        """Topic and partition as one value."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class _Logs:
    logs: list[ListedLog]

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class ReportedConfig:
    """The configuration of a topic as its running broker applies it.

    ``values``: the effective settings. ``topic_level``: the names of those that the topic itself sets; None: the agent
    does not report them. ``segment_bytes``: apart, because a hidden key can change it.
    """

    values: Mapping[str, str]
    segment_bytes: int
    topic_level: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class LogFacts:
    """``log``: one partition, all numbers taken at one moment. ``segments`` ascend, the last is the active one.

    ``settings``, ``topic_level``, ``segment_size``: see :class:`ReportedConfig`. ``cleaning``: the state of Kafka's
    cleaner. ``compares_aborted``: a swap request may contain the aborted transactions that it depends on (U-32).
    ``compares_clean``: a checkpoint may come with the segment below it (S-50). ``proves_by_markers``: a staged
    transaction index may differ from a wrong one (A-40).
    """

    dir: str
    topic_id: Annotated[str | None, AfterValidator(_topic_id)]
    hw: Offset
    lso: Offset
    leo: Offset
    log_start: Offset
    recovery_point: Offset
    segments: Annotated[list[Annotated[BrokerSegment, PlainValidator(_segment)]], Field(min_length=1)]
    settings: dict[str, str]
    segment_size: Offset
    cleaning: str
    topic_level: frozenset[str] | None = None
    future: bool = False
    remote: bool = False
    deleted: bool = False
    compares_aborted: bool = False
    compares_clean: bool = False
    proves_by_markers: bool = False

    __pydantic_config__ = _STRICT

    @property
    def active(self) -> BrokerSegment:
        """The segment that the broker appends to."""
        return self.segments[-1]

    @property
    def config(self) -> ReportedConfig:
        """The configuration of the topic."""
        return ReportedConfig(self.settings, self.segment_size, self.topic_level)


class ActiveProducer(NamedTuple):
    """A producer that the broker counts as active; ``last_data_offset``: None if only markers are known of it."""

    producer_id: Long
    last_data_offset: Long | None
    epoch: int


def _producer(row: object) -> ActiveProducer:
    """``[id, last data offset or null, epoch]``; raises ValueError."""
    if not isinstance(row, list) or len(row) != 3 or type(row[0]) is not int or type(row[2]) is not int:
        raise ValueError("a producer is [id, last data offset or null, epoch]")
    if type(row[1]) not in {int, type(None)}:
        raise ValueError("a producer's last data offset is a whole number or null")
    return ActiveProducer(*row)


@dataclass(frozen=True, slots=True)
class _Producers:
    active: list[Annotated[ActiveProducer, PlainValidator(_producer)]]

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class _Rolled:
    base: Offset

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class SwapDone:
    """``swap``: the swapped group.

    ``held_us``: how long appends had to wait, per group. ``witnesses_kept``: the next request of the plan on this
    connection may omit them.
    """

    done: list[Offset]
    outputs: list[dict[str, Long]] = field(default_factory=list)
    held_us: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    repeated: bool = False
    witnesses_kept: bool = False

    __pydantic_config__ = _STRICT


def fetch_info(client: AgentClient) -> AgentInfo:
    """The agent's ``info``.

    Raises:
        AgentLostError: no valid answer.
    """
    return _read(client, AgentInfo, "info", client.call("info"))


def fetch_logs(client: AgentClient, prefix: str = "") -> list[ListedLog]:
    """The broker's partitions of topics that begin with ``prefix``.

    Raises:
        AgentRefusalError, AgentLostError: it does not answer.
    """
    found = _request(client, _Logs, "logs", prefix=prefix) if prefix else _request(client, _Logs, "logs")
    return found.logs


def fetch_log(client: AgentClient, name: TopicPartition) -> LogFacts:
    """The facts about one partition.

    Raises:
        AgentRefusalError, AgentLostError: it does not answer.
    """
    facts = _request(client, LogFacts, "log", topic=name.topic, partition=name.partition)
    bases = [segment.base for segment in facts.segments]
    if sorted(set(bases)) != bases or not facts.log_start <= facts.leo or facts.hw > facts.leo or facts.lso > facts.hw:
        raise _nonsense(client, "log", "its numbers contradict each other")
    return facts


def fetch_producers(client: AgentClient, name: TopicPartition, ids: list[int]) -> list[ActiveProducer]:
    """The producers in ``ids`` that the broker counts as active for a partition.

    Raises:
        AgentRefusalError, AgentLostError: it does not answer.
    """
    return _request(client, _Producers, "producers", topic=name.topic, partition=name.partition, ids=ids).active


def request_roll(client: AgentClient, name: TopicPartition, facts: LogFacts) -> int:
    """Have the broker begin a new active segment after the one in ``facts`` (A-41); its base offset.

    Raises:
        AgentRefusalError: refused: it was rolled meanwhile, holds no records, or is not cleaned.
        AgentLostError: no answer came, or a malformed one.
    """
    found = client.call(
        "roll",
        topic=name.topic,
        partition=name.partition,
        topic_id=facts.topic_id,
        dir=facts.dir,
        base=facts.active.base,
    )
    return _read(client, _Rolled, "roll", found).base


def request_swap(client: AgentClient, request: dict[str, Any], *, timeout_seconds: float) -> SwapDone:
    """Send one swap request; returns its answer.

    Raises:
        AgentRefusalError: refused.
        AgentLostError: no answer came, or a malformed one.
    """
    return _request(client, SwapDone, "swap", timeout_seconds=timeout_seconds, **request)


def _request(
    client: AgentClient, kind: type[T], operation: str, *, timeout_seconds: float | None = None, **fields: Any
) -> T:
    found = client.call_for(kind, operation, timeout_seconds=timeout_seconds, **fields)
    return _read(client, kind, operation, found) if isinstance(found, dict) else found


def _read(client: AgentClient, kind: type[T], operation: str, result: dict[str, Any]) -> T:
    try:
        return adapter_of(kind).validate_json(line_bytes(result))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        why = f"{place}: {first['msg']}"
    except (ValueError, RecursionError) as error:
        why = str(error)
    client.close()
    raise _nonsense(client, operation, why)


def _nonsense(client: AgentClient, operation: str, why: str) -> AgentLostError:
    return AgentLostError(
        f"the broker's agent: the answer to {operation} cannot be understood: {why}", where=client.where
    )
