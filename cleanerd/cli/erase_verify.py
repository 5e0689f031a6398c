"""``cleanerd erase verify``: whether the certificates of all replicas prove that a key is gone (U-87)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from cleanerd.admin.client_config import read_client_config
from cleanerd.admin.cluster import Cluster, require_bootstrap
from cleanerd.cli.key_options import find_terms
from cleanerd.cli.output import Column, Output
from cleanerd.errors import CleanerdError, ConfigError, CorruptionError, system_error, worst_exit_code
from cleanerd.format.names import uuid_to_base64
from cleanerd.humanize import counted
from cleanerd.inspection.report import time_of
from cleanerd.policy.replicas import MARGIN_MS
from cleanerd.resolution.broker_facts import meta_of
from cleanerd.segments.cluster_metadata import read_cluster_metadata
from cleanerd.state.erasure_requests import read_request
from cleanerd.verify.certificate import PREFIX, Certificate, parse_public_key, read_certificate, require_cryptography
from cleanerd.verify.erasure_proof import AssignedReplicas, Expected, Proof, judge

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cleanerd.cli.options import Common

NOT_PROVEN: Final = 1


def verify(
    common: Common,
    paths: tuple[Path, ...],
    now_ms: int | None,
    *,
    request_file: Path | None,
    topic: str | None,
    key: str | None,
    as_hex: bool,
    as_base64: bool,
    since_ms: int | None,
    trust: tuple[str, ...],
    metadata: Path | None,
    bootstrap: str | None,
    command_config: Path | None,
) -> int:
    """Run ``cleanerd erase verify``; its options are in ``erase_commands.py``."""
    require_cryptography()
    expected = _expected(request_file, topic, key, since_ms, as_hex=as_hex, as_base64=as_base64)
    trusted = _trusted(trust)
    if metadata is None:
        cluster = _from_cluster(common, expected.topic, bootstrap, command_config)
    else:
        cluster = _from_metadata_log(metadata, expected.topic)
    certificates, damaged = _read_all(paths)
    at_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    proof = judge(certificates, cluster, expected, trusted, at_ms)
    _show(common.output, proof, cluster, damaged)
    codes = {error.exit_code for error in damaged}
    return worst_exit_code(codes | (set() if proof.is_complete else {NOT_PROVEN}))


def _expected(
    request_file: Path | None,
    topic: str | None,
    key: str | None,
    since_ms: int | None,
    *,
    as_hex: bool,
    as_base64: bool,
) -> Expected:
    data = None
    if key is not None:
        (term,) = find_terms(keys=(key,), as_hex=as_hex, as_base64=as_base64)
        data = term.data
    if request_file is None:
        if topic is None or data is None or since_ms is None:
            raise click.UsageError("give --request FILE, or --topic, --key and --since-ms")
        return Expected(topic, since_ms, key=data)
    request = read_request(request_file)
    if topic not in {None, request.topic}:
        raise ConfigError(f"is about topic {request.topic}, not {topic}", where=str(request_file))
    if data is not None and not request.key.is_of(data):
        raise ConfigError("is about another key than --key", where=str(request_file))
    return Expected(
        topic=request.topic,
        since_ms=request.requested_ms if since_ms is None else since_ms,
        key_hash=request.key,
        key=data,
        request=request.id,
        topic_id=request.topic_id,
        cluster_id=request.cluster_id,
        tombstones=request.tombstones,
    )


def _trusted(words: Sequence[str]) -> dict[str, int | None]:
    """Public keys, each with the one broker that it may sign for; from keys, and from files with one per line.

    Raises:
        ConfigError: a file cannot be read, or has another content.
    """
    found: dict[str, int | None] = {}
    for word in words:
        lines = [word] if word.startswith(PREFIX) else _lines_of(word)
        for number, line in enumerate(lines, 1):
            text, _, broker = line.partition("#")[0].strip().partition(" ")
            if not text:
                continue
            try:
                found[parse_public_key(text)] = int(broker) if broker.strip() else None
            except ValueError as error:
                raise ConfigError(f"line {number}: {error}", where=word[:200], hint="KEY, or KEY BROKER") from None
    if not found:
        raise ConfigError("has no public key", where=", ".join(words)[:200])
    return found


def _lines_of(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(1024 * 1024).splitlines()
    except FileNotFoundError:
        raise ConfigError("does not exist", where=path, hint="a public key, or a file with one per line") from None
    except OSError as error:
        raise system_error("cannot be read", path, error) from error
    except UnicodeDecodeError:
        raise ConfigError("is not a file of public keys", where=path) from None


def _from_cluster(common: Common, topic: str, bootstrap: str | None, command_config: Path | None) -> AssignedReplicas:
    settings = common.load_settings()
    client = read_client_config(command_config or settings.daemon.cleanerd_command_config)
    with Cluster(require_bootstrap(bootstrap or settings.daemon.bootstrap_servers, client), client) as cluster:
        cluster_id, found = cluster.cluster_id(), cluster.replicas([topic])
    if not found:
        raise ConfigError("the cluster has no such topic, or does not let you see it", where=topic)
    topic_id = next(iter(found.values())).topic_id
    written_id = None if topic_id is None else uuid_to_base64(topic_id)
    partitions = {name.partition: each.assigned for name, each in found.items()}
    return AssignedReplicas(cluster_id, topic, written_id, partitions)


def _from_metadata_log(log_dir: Path, topic: str) -> AssignedReplicas:
    """The replicas at the end of a metadata log, which may be uncommitted, and those before it: all are required."""
    partitions: dict[int, frozenset[int]] = {}
    for margin_ms in (MARGIN_MS, 0):
        metadata = read_cluster_metadata(log_dir / "__cluster_metadata-0", only_before_ms=None, margin_ms=margin_ms)
        topic_id = metadata.topics.get(topic)
        if topic_id is None:
            raise ConfigError("the cluster has no such topic", where=topic, hint=f"by the metadata log in {log_dir}")
        if metadata.replicas.unread:
            raise ConfigError(metadata.replicas.unread, where=str(log_dir), hint="use --bootstrap-server")
        for number, each in metadata.replicas.topics.get(topic_id, {}).items():
            partitions[number] = partitions.get(number, frozenset()) | each.assigned
    if not partitions:
        raise ConfigError("the metadata log does not show the topic's replicas", where=topic)
    meta = meta_of(log_dir)
    return AssignedReplicas(None if meta is None else meta.cluster_id, topic, uuid_to_base64(topic_id), partitions)


def _read_all(paths: Sequence[Path]) -> tuple[list[Certificate], list[CleanerdError]]:
    found: list[Certificate] = []
    damaged: list[CleanerdError] = []
    for path in paths:
        try:
            found.append(read_certificate(path))
        except CorruptionError as error:
            damaged.append(error)
    return found, damaged


def _show(output: Output, proof: Proof, cluster: AssignedReplicas, damaged: Sequence[CleanerdError]) -> None:
    failures = [*(str(error) for error in damaged), *proof.failures]
    complete = proof.is_complete and not damaged
    if output.as_json:
        replicas = [
            {
                "partition": each.partition,
                "broker": each.broker,
                "proven": not each.failures,
                "failures": list(each.failures),
                "certificate": None if each.certificate is None else str(each.certificate.path),
                "searched_ms": None if each.certificate is None else each.certificate.statement.began_ms,
            }
            for each in proof.replicas
        ]
        document = {"topic": cluster.topic, "topic_id": cluster.topic_id, "complete": complete, "replicas": replicas}
        output.json({**document, "failures": failures, "notes": list(proof.notes)})
        return
    columns = [
        Column("partition"),
        Column("broker", right=True),
        Column("searched"),
        Column("proven"),
        Column("why not"),
    ]
    rows = []
    for each in proof.replicas:
        searched = "" if each.certificate is None else time_of(each.certificate.statement.began_ms)
        name = f"{cluster.topic}-{each.partition}"
        rows.append([name, str(each.broker), searched, "no" if each.failures else "yes", "; ".join(each.failures)])
    output.table(columns, rows)
    for failure in failures:
        output.line(f"not accepted: {failure}")
    for note in proof.notes:
        output.note(note)
    proven = sum(not each.failures for each in proof.replicas)
    whole = "complete: the key is gone from" if complete else "NOT complete: proven for"
    output.line(f"{whole} {proven} of {counted(len(proof.replicas), 'replica')} of {cluster.topic}")
