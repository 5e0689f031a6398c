"""``cleanerd erase keygen`` and ``certify``: a signed statement of this host about a key (U-86)."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cleanerd import __version__
from cleanerd.broker.agent_attach import log_dirs_of_process
from cleanerd.broker.lock_file import broker_process, is_held
from cleanerd.cli.audit import FOUND, HostSearch, search_host, show_key
from cleanerd.cli.key_options import find_terms
from cleanerd.errors import CleanerdError, ConfigError, CorruptionError, system_error
from cleanerd.format.names import parse_topic_partition_dir, uuid_to_base64
from cleanerd.humanize import counted
from cleanerd.inspection.snapshots import search_snapshots
from cleanerd.resolution.log_dirs import configured_log_dirs
from cleanerd.segments.cleanable_range import log_end_offset
from cleanerd.segments.log_dir import LogDir, read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.segments.reading import SegmentReader
from cleanerd.state.erasure_requests import ErasureRequest, ErasureRequests, KeyHash, new_salt, read_request
from cleanerd.verify.audit import LIVE
from cleanerd.verify.certificate import OtherPlace, ReplicaStatement, Statement, create_key, read_key, signed
from cleanerd.verify.searched_files import SearchedFiles

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from cleanerd.cli.options import Common
    from cleanerd.config.load import Settings

KEY_FILE: Final = "erasure.key"
"""The default key file, in the state directory."""
_DAY_MS: Final = 86_400_000


def keygen(common: Common, file: Path | None) -> None:
    """Run ``cleanerd erase keygen``; its options are in ``erase_commands.py``."""
    path = file or common.load_settings().daemon.cleanerd_state_dir / KEY_FILE
    key = create_key(path)
    if common.output.as_json:
        common.output.json({"key_file": str(path), "public_key": key.public_key})
    else:
        common.output.line(key.public_key)
        common.output.note(f"private key: {path}. The line above is the public key, also in {path}.pub")


@dataclass(slots=True)
class _Searched:
    """The search results by place. ``replicas``: topic id, first and end offset of each live directory."""

    dirs: dict[Path, LogDir]
    files: SearchedFiles = field(default_factory=SearchedFiles)
    replicas: dict[Path, tuple[str | None, int, int]] = field(default_factory=dict)
    unsearched: list[str] = field(default_factory=list)

    def begin(self, place: Path) -> None:
        """Before a place is searched: note its log's end and its files."""
        name, log_dir = parse_topic_partition_dir(place.name), self.dirs.get(place.parent)
        if name is not None and log_dir is not None:
            try:
                log = read_partition(log_dir, name)
                with SegmentReader.open(str(log.path), chunk_bytes=256 * 1024) as reader:
                    end = log_end_offset(log, reader, may_be_torn=True)
            except CleanerdError as error:
                self.unsearched.append(str(error))
            else:
                topic_id = None if log.topic_id is None else uuid_to_base64(log.topic_id)
                self.replicas[place] = topic_id, log.segments[0].base, end
        self.files.begin(place)


def certify(
    common: Common,
    topic: str,
    log_dirs: tuple[Path, ...],
    *,
    key: str,
    as_hex: bool,
    as_base64: bool,
    request_file: Path | None,
    key_file: Path | None,
    output_file: Path | None,
    also: tuple[Path, ...],
    valid_days: int,
) -> int:
    """Run ``cleanerd erase certify``; its options are in ``erase_commands.py``."""
    log_dirs = common.log_dirs(log_dirs)
    (term,) = find_terms(keys=(key,), as_hex=as_hex, as_base64=as_base64)
    settings = common.load_settings()
    requests = ErasureRequests(settings.daemon.cleanerd_state_dir)
    request = _request(requests, request_file, topic, term.data)
    signing = read_key(key_file or settings.daemon.cleanerd_state_dir / KEY_FILE)
    searched = _Searched({path: read_log_dir(path) for path in log_dirs})
    owner = _one_owner(searched.dirs.values())
    searched.unsearched += _not_named(settings, log_dirs)
    began_ms = _now_ms()
    host = search_host(common, settings, topic, log_dirs, [term], searched.begin)
    if {name.topic for name in host.names} != {topic}:
        raise ConfigError("is not a topic", where=topic, hint="a certificate is about all partitions of one topic")
    replicas, others = _places(host, searched)
    found = sum(len(each.found.occurrences) for each in host.places)
    for directory in also:
        snapshot = search_snapshots(directory, term)
        found += snapshot.found
        searched.unsearched += snapshot.unsearched
        others.append(OtherPlace(str(directory), None, "snapshot", snapshot.files))
    ended_ms = _now_ms()
    searched.unsearched += [each.what for each in host.elsewhere.unsearched]
    statement = Statement(
        cleanerd=__version__,
        host=socket.gethostname(),
        cluster_id=owner.meta.cluster_id,
        broker=owner.meta.node_id,
        topic=topic,
        key=KeyHash.of(term.data, new_salt()) if request is None else request.key,
        request=None if request is None else request.id,
        began_ms=began_ms,
        ended_ms=ended_ms,
        expires_ms=ended_ms + valid_days * _DAY_MS,
        broker_running=any(is_held(path) for path in log_dirs),
        found=found,
        unsearched=tuple(dict.fromkeys(searched.unsearched)),
        replicas=tuple(replicas),
        other_places=tuple(others),
    )
    _write(common, output_file, signed(statement, signing))
    return _report(common, statement, term.data, requests, request)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _request(requests: ErasureRequests, file: Path | None, topic: str, key: bytes) -> ErasureRequest | None:
    """The request for this key: from the file, else an open one of this host.

    Raises:
        ConfigError: the file is for another topic or key.
    """
    if file is None:
        return next((each for each in requests.load() if each.is_about(topic, key)), None)
    request = read_request(file)
    if request.topic != topic:
        raise ConfigError(f"is about topic {request.topic}, not {topic}", where=str(file))
    if not request.key.is_of(key):
        raise ConfigError("is about another key than --key", where=str(file))
    return request


def _one_owner(log_dirs: Collection[LogDir]) -> LogDir:
    """One of the log directories, after a check that all belong to one broker.

    Raises:
        ConfigError: they do not.
    """
    owners = {(each.meta.cluster_id, each.meta.node_id): each for each in log_dirs}
    if len(owners) > 1:
        raise ConfigError(
            "the log directories belong to different brokers",
            where=", ".join(str(each.path) for each in owners.values()),
            hint="a certificate is about one broker: run this once for each",
        )
    return next(iter(owners.values()))


def _not_named(settings: Settings, log_dirs: Sequence[Path]) -> list[str]:
    """The broker's log directories, from the settings or its process, that are not searched."""
    known = list(configured_log_dirs(settings))
    for path in log_dirs:
        try:
            known += log_dirs_of_process(broker_process(path)) if is_held(path) else []
        except CleanerdError:
            continue  # its process is not visible from here
    named = {os.path.realpath(path) for path in log_dirs}
    missing = {os.path.realpath(path) for path in known} - named
    return [f"{path}: a log directory of the broker, was not named" for path in sorted(missing)]


def _places(host: HostSearch, searched: _Searched) -> tuple[list[ReplicaStatement], list[OtherPlace]]:
    replicas, others = [], []
    for each in host.places:
        files, changed = searched.files.statements(each.path, each.state)
        searched.unsearched += [*each.found.unread, *changed]
        if each.state != LIVE:
            others.append(OtherPlace(str(each.path), each.name.partition, each.state, files))
        elif each.path in searched.replicas:
            topic_id, first, end = searched.replicas[each.path]
            directory_id = searched.dirs[each.path.parent].meta.directory_id
            written_id = None if directory_id is None else uuid_to_base64(directory_id)
            replicas.append(ReplicaStatement(each.name.partition, topic_id, written_id, first, end, files))
    return replicas, others


def _write(common: Common, path: Path | None, data: bytes) -> None:
    if path is None:
        common.output.raw(data.decode())
        return
    try:
        path.write_bytes(data)
    except OSError as error:
        raise system_error("cannot be written", str(path), error) from error


def _report(
    common: Common, statement: Statement, key: bytes, requests: ErasureRequests, request: ErasureRequest | None
) -> int:
    files = sum(len(each.files) for each in statement.replicas) + sum(
        len(each.files) for each in statement.other_places
    )
    where = f"in {counted(files, 'file')} of {counted(len(statement.replicas), 'replica')} on broker {statement.broker}"
    for what in statement.unsearched:
        common.output.warning(f"not searched: {what}")
    if statement.found:
        common.output.note(
            f"{show_key(key)}: {counted(statement.found, 'record')} {where}; cleanerd erase plan shows them"
        )
    if statement.unsearched:
        return CorruptionError.exit_code
    if statement.found:
        return FOUND
    tombstones = {} if request is None else request.tombstones
    behind = [each for each in statement.replicas if each.to_offset <= tombstones.get(each.partition, -1)]
    for each in behind:
        common.output.warning(
            f"{statement.topic}-{each.partition} ends at offset {each.to_offset}, below the tombstone at offset "
            f"{tombstones[each.partition]}: certify again when the replica has caught up"
        )
    if behind:
        return FOUND
    common.output.note(f"{show_key(key)}: nowhere {where}")
    if request is not None:
        try:
            requests.certified(request.id, statement.ended_ms)
        except CleanerdError as error:
            common.output.warning(f"the request stays open here: {error}")
    for warning in requests.warnings:
        common.output.warning(warning)
    return 0
