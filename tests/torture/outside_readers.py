"""Readers of data from hosts, broker processes and other daemons, and of the operator's input; for hostile bytes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast
from unittest.mock import patch

from cleanerd.admin import key_stores, peers
from cleanerd.admin.cluster_compare import (
    DaemonAnswer,
    compare,
    comparison_lines,
    of_one_cluster,
    reclaimable,
    saving_lines,
)
from cleanerd.broker import agent_attach
from cleanerd.cli.cluster import read_targets, status_url
from cleanerd.daemon import control_client
from cleanerd.daemon.canary import Canary
from cleanerd.daemon.control import ControlServer, Peer
from cleanerd.daemon.control_api import ControlApi
from cleanerd.daemon.http import hosts
from cleanerd.daemon.registry.partition_entry import PartitionEntry
from cleanerd.daemon.registry.partition_registry import PartitionRegistry, RegistrySettings
from cleanerd.daemon.work import spark_offload
from cleanerd.daemon.work.job import Backoff
from cleanerd.format import names
from cleanerd.format.jaas import read_jaas
from cleanerd.format.jks import JKS_MAGIC, JksError, read_jks
from cleanerd.fsio import mounts
from cleanerd.host import memory
from cleanerd.policy.canary import parse_canary
from cleanerd.resolution.selection import select
from tests.daemon.views import busy
from tests.torture.more_readers import writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.torture.more_readers import Found

_PASSWORD: Final = "store s3cret"  # noqa: S105 - of stores that are made here
_PEM: Final = "-----BEGIN {0}-----\nMIIBxTCCAWugAwIBAgIUQ2ZkbA==\n-----END {0}-----\n"
_JAAS: Final = (
    b'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b\\"c\\101";',
    b"a.B required /* c */ d='e' // f\n g=h;",
)
_STATUS: Final = b"""Name:\tjava
Uid:\t1000\t1000\t1000\t1000
Gid:\t1000\t1000\t1000\t1000
NSpid:\t4711\t12
SigCgt:\t0000000181005ccf
"""
_MAPS: Final = b"7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/jvm/java-17/lib/server/libjvm.so\n"
_MOUNTS: Final = b"""22 28 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw
30 28 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate
31 28 0:27 /docker\\040a /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
"""
_SPLIT: Final = b"\n\xff\n"
"""Separates the parts that represent several files."""


def _jks() -> bytes:
    def text(word: bytes) -> bytes:
        return len(word).to_bytes(2, "big") + word

    def block(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + data

    certificate = text(b"X.509") + block(b"\x30\x03\x02\x01\x05")
    hidden = bytes.fromhex("3039300e060a2b060104012a021101010500") + b"\x04\x27" + b"s" * 39
    entries = (2).to_bytes(4, "big") + text(b"ca") + bytes(8) + certificate
    entries += (1).to_bytes(4, "big") + text(b"own") + bytes(8) + block(hidden) + (1).to_bytes(4, "big") + certificate
    return _sealed(JKS_MAGIC + (2).to_bytes(4, "big") + (2).to_bytes(4, "big") + entries)


def _sealed(body: bytes) -> bytes:
    return body + hashlib.sha1(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()  # noqa: S324


def words_and_stores(root: Path) -> list[Found]:
    """Key stores, logins, file names, and partition names as operators type them."""
    store = root / "store"
    put = writer(store)
    pem = "".join(map(_PEM.format, ("CERTIFICATE", "PRIVATE KEY"))).encode()
    known = [names.TopicPartition(topic, number) for topic in ("orders", "orders.v1", "a") for number in range(3)]

    def jks(data: bytes) -> None:
        for password, whole in ((None, data), (_PASSWORD, data), (_PASSWORD, _sealed(data[:-20]))):
            try:
                read_jks(whole, password, _PASSWORD)
            except JksError:
                continue

    def stores(data: bytes) -> None:
        if data[:1] != b"\x30":  # openssl reads these
            put(data)
            key_stores.trusted_certificates(store, None)
            key_stores.key_pair(store, _PASSWORD, None)

    def jaas(data: bytes) -> None:
        try:
            read_jaas(data.decode(errors="surrogateescape"))
        except ValueError:
            return

    def name(data: bytes) -> None:
        text = data.decode(errors="surrogateescape")
        for read in (
            names.parse_file_name,
            names.parse_checkpoint_name,
            names.parse_topic_partition_dir,
            names.parse_future_dir,
        ):
            read(text)
        try:
            names.uuid_from_base64(text)
        except ValueError:
            return

    def partitions(data: bytes) -> None:
        select(data.decode(errors="surrogateescape").split("\n"), known, what="unknown", hint="none")

    return [
        ("key store", (_jks(),), jks),
        ("key store as PEM", (pem,), stores),
        ("login", _JAAS, jaas),
        (
            "names of files",
            (
                b"00000000000000000017.log",
                b"00000000000000000017-0000000003.checkpoint",
                b"orders-0",
                b"orders-0.0123456789abcdef0123456789abcdef-future",
                b"xQwFF0lpRRGVrIe6ybFkhw",
            ),
            name,
        ),
        ("requested partitions", (b"orders-0\na", b"orders*", b"[a-z].v1\n?-[12]"), partitions),
    ]


def reported_by_hosts(root: Path) -> list[Found]:
    """/proc, /etc/hosts, and a JVM's files; all below ``root``."""
    proc = root / "proc"
    for place in ("7", "self", "root"):
        (proc / place).mkdir(parents=True)
    (proc / "7" / "root" / "jvm").mkdir(parents=True)
    put = {
        path: writer(proc / path)
        for path in (
            "7/status",
            "7/maps",
            "7/root/jvm/release",
            "self/status",
            "self/mountinfo",
            "self/cgroup",
            "meminfo",
            "hosts",
        )
    }
    (proc / "7" / "root" / "jvm" / "lib" / "server").mkdir(parents=True)

    def jvm(data: bytes) -> None:
        status, _, maps = data.partition(_SPLIT)
        put["7/status"](status)
        put["7/maps"](maps)
        agent_attach.inspect_process(7, proc)

    def java(data: bytes) -> None:
        put["7/root/jvm/release"](data)
        agent_attach._require_java(agent_attach.Jvm(7, 0, 0, 7, catches_quit=True, home="/jvm", proc=proc))

    def limits(data: bytes) -> None:
        parts = [*data.split(_SPLIT), b"", b"", b"", b""]
        for path, part in zip(("self/mountinfo", "self/cgroup", "self/status", "meminfo"), parts, strict=False):
            put[path](part)
        memory.measure(proc)

    def mounted(data: bytes) -> None:
        device = os.stat(proc).st_dev
        text = data.decode(errors="replace").replace("0:26", f"{os.major(device)}:{os.minor(device)}")
        mounts.file_system_of(proc, text)

    def own_names(data: bytes) -> None:
        put["hosts"](data)
        hosts.local_host_names(proc / "hosts")

    def host(data: bytes) -> None:
        text = data.decode("latin-1")
        hosts.name_of(text)
        hosts.Hosts((), loopback_only=True).refusal([text])

    groups = b"0::/user.slice\n4:memory:/docker a/b\n"
    own = b"RssAnon:\t  1000 kB\n"
    machine = b"MemAvailable:  1000000 kB\n"
    return [
        ("process of a broker", (_STATUS + _SPLIT + _MAPS,), jvm),
        ("release of a Java", (b'JAVA_VERSION="17.0.2"\nOS_NAME="Linux"\n', b'JAVA_VERSION="1.8.0_292"\n'), java),
        ("memory limits", (_SPLIT.join((_MOUNTS, groups, own, machine)),), limits),
        ("mounts", (_MOUNTS,), mounted),
        ("hosts file", (f"127.0.0.1 localhost\n10.0.0.1 {socket.gethostname()} a.b # c\n".encode(),), own_names),
        ("host of a request", (b"localhost:10280", b"[::1%lo]:1", b"127.0.0.1", b"a.b."), host),
    ]


def _daemon(state_dir: Path) -> ControlServer:
    """The operations of a daemon with three partitions and no workers."""
    registry = PartitionRegistry(RegistrySettings(Backoff(1000, 8000), 86_400_000, 100))
    for number, excluded in enumerate(("", "", "is not compacted")):
        name = names.TopicPartition("orders", number)
        registry.partitions["/a", name] = PartitionEntry(name, "/a", excluded=excluded)
    mode = SimpleNamespace(work="live", reason="a reason")
    registry.dirs["/a"] = cast("Any", SimpleNamespace(error="", facts=object(), mode=mode))
    quiet = SimpleNamespace(
        schedule=lambda: None,
        interrupt=lambda _wanted: 0,
        forgive=registry.clear_failures,
        wake=lambda: None,
        publish=lambda: None,
        warn=lambda _text: None,
    )
    daemon = SimpleNamespace(cleanerd_state_dir=state_dir, cleanerd_canary=parse_canary("5 partitions"))
    configuration = cast("Any", SimpleNamespace(settings=SimpleNamespace(daemon=daemon)))
    canary = Canary(
        configuration, registry, now_ms=lambda: 0, changed=lambda: None, write=lambda save, done: done(save())
    )
    api = ControlApi(
        configuration,
        registry,
        *(cast("Any", quiet),) * 3,
        dict,
        lambda work, done: done(work()),
        canary=canary,
    )
    requested = {
        name: handle for name, handle in api.handlers().items() if name not in {"status", "operations", "explain"}
    }
    return ControlServer(Path("/x"), requested, note=api.note)


def _operated(root: Path) -> Found:
    service = _daemon(root)

    def operation(data: bytes) -> None:
        """Requests that wait for other threads are skipped; the others never wait, so no event loop is needed."""
        try:
            service._answer(data, Peer(0, 1)).send(None)
        except StopIteration as ended:
            if "unexpected" in str(ended.value.get("error")):
                raise AssertionError(ended.value) from None
        else:
            raise AssertionError("it waits for something")

    operations = (
        {"op": "trigger", "partitions": ["orders-0", "a*"]},
        {"op": "pause", "partition": "orders-1"},
        {"op": "resume", "partitions": []},
        {"op": "retry"},
        {"op": "reload"},
        {"op": "release-canary"},
    )
    return "operation on the daemon", tuple(json.dumps(each).encode() for each in operations), operation


def reported_by_daemons(root: Path) -> list[Found]:
    """Responses of daemons by HTTP and by socket, requests to them, and files of a Spark process."""
    root.mkdir()
    targets = root / "targets.json"
    put = writer(targets)
    status = busy(1).to_json()
    shown = json.dumps({**status, "history": status["history"][:1], "running": []}, default=str).encode()
    heads = (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    bodies = tuple((head % len(shown) if b"%d" in head else head) + shown for head in heads)
    groups = [{"targets": ["a:1", "b"], "labels": {"x": "y"}}, {"targets": ["https://c/d"]}]

    def of_cluster(data: bytes) -> None:
        """The raw response: status line, headers, body."""

        class Line:
            def makefile(self, *_: object, **__: object) -> Any:
                return io.BytesIO(data)

            def __getattr__(self, _name: str) -> Callable[..., None]:
                return lambda *_, **__: None

        with patch.object(
            socket, "create_connection", lambda *_, **__: Line()
        ):  # a million real connections would take hours
            answer = DaemonAnswer.of("a", peers._status_at("http://a/status", 5.0, peers.MOST_BYTES))
        answers = of_one_cluster([answer, answer])
        found = compare(answers)
        found.to_json()
        comparison_lines(found)
        saving_lines(reclaimable(answers), answers, None)

    def requested(data: bytes) -> None:
        put(data)
        for each in read_targets(targets):
            status_url(each)

    def answered(data: bytes) -> None:
        class Line(socket.socket):
            def connect(self, _address: object) -> None:
                pass

            def sendall(self, *_: object) -> None:
                pass

            def makefile(self, *_: object, **__: object) -> Any:
                return io.BytesIO(data)

        with patch.object(control_client.socket, "socket", Line):  # a million real connections would take hours
            control_client.send_request(root, "status")

    def by_spark(data: bytes) -> None:
        result, _, errors = data.partition(_SPLIT)
        scan = SimpleNamespace(log_dir=SimpleNamespace(path=root))
        facts = SimpleNamespace(metadata_dir=None, settings=None)
        job = SimpleNamespace(
            name=names.TopicPartition("a", 0), scan=scan, facts=facts, progress=SimpleNamespace(check=None)
        )
        spark_offload.result_of(cast("Any", job), len(errors) % 3, result, errors.decode(errors="replace"))

    left = {"topic": "a", "partition": 0, "outcome": "cleaned", "bytes_before": 9, "bytes_after": 3}
    return [
        _operated(root),
        ("status of a daemon", (*bodies, b"HTTP/1.1 421 No\r\n\r\n"), of_cluster),
        ("daemon requests", (json.dumps(groups).encode(),), requested),
        ("answer of the daemon", (b'{"ok":true,"result":{"a":1}}\n', b'{"ok":false,"error":"x","code":3}\n'), answered),
        (
            "result of Spark's process",
            (json.dumps({"partitions": [left]}).encode() + _SPLIT + b"cleanerd: no\n",),
            by_spark,
        ),
    ]
