"""A fake Kubernetes: an API server that stores objects and notifies watchers, and pods that are local processes.

The files of an image are below ``/opt`` of the pod's own mount namespace, with its volumes at their mount points.
Every request is recorded as (verb, resource), so that a test can compare a Role with the requests.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Document = dict[str, Any]
NAMESPACE = "/api/v1/namespaces/default/"
HOSTS = f"127.0.0.1 localhost {socket.gethostname()}\n"


class Kubernetes:
    """Namespace ``default``. ``image``: a shell command that creates the image's files below ``/opt``, and its ENV.

    ``entrypoint`` is the image's.
    """

    def __init__(self, place: Path, image: str, environment: Mapping[str, str], entrypoint: str) -> None:
        self._place, self._image, self._environment, self._entrypoint = place, image, dict(environment), entrypoint
        self.objects: dict[str, Document] = {}
        self.question: set[tuple[str, str]] = set()
        self.outputs: dict[str, Path] = {}
        self.specs: dict[str, Document] = {}
        self._events: list[tuple[str, Document]] = []
        self._changed = threading.Condition()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._codes: dict[str, int] = {}
        self._addresses: dict[str, str] = {}
        handler = type("Handler", (_Handler,), {"kubernetes": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """End all pods, and the server."""
        for name in list(self._processes):
            self._kill(name)
        self._server.shutdown()
        self._server.server_close()

    def put(self, kind: str, document: Document) -> Document:
        """Create or replace an object; a pod is started."""
        document = {**document, "metadata": {"namespace": "default", **document["metadata"]}}
        meta = document["metadata"]
        if "name" not in meta:
            meta["name"] = f"{meta['generateName']}{uuid.uuid4().hex[:5]}"
        path = f"{NAMESPACE}{kind}/{meta['name']}"
        with self._changed:
            known = self.objects.get(path)
            meta["uid"] = known["metadata"]["uid"] if known else str(uuid.uuid4())
            meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
            if kind == "pods" and known is None:
                document["status"] = {"phase": "Pending"}
            self._notify("ADDED" if known is None else "MODIFIED", path, document)
        if kind == "pods" and known is None:
            threading.Thread(target=self._run, args=(path, document), daemon=True).start()
        self._write_hosts()
        return document

    def delete(self, path: str) -> None:
        """Remove an object; a pod ends."""
        with self._changed:
            gone = self.objects.get(path)
            if gone is None:
                return
            self._notify("DELETED", path, gone)
            del self.objects[path]
        self._kill(gone["metadata"]["name"])

    def listed(self, kind: str, query: Mapping[str, list[str]]) -> list[Document]:
        """The objects of a kind that the query's selectors choose."""
        with self._changed:
            found = [each for path, each in self.objects.items() if path.startswith(f"{NAMESPACE}{kind}/")]
        return [each for each in found if _chosen(each, query)]

    def events(self, seen: int, kind: str, query: Mapping[str, list[str]]) -> tuple[int, list[Document]]:
        """Wait for at most a second; returns the events after ``seen``, and their number."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._events) > seen, 1)
            new = self._events[seen:]
            wanted = [
                {"type": what, "object": each}
                for what, each in new
                if each["_path"].startswith(f"{NAMESPACE}{kind}/") and _chosen(each, query)
            ]
            return len(self._events), wanted

    def wait(self, name: str, seconds: float) -> int:
        """The exit code of a pod's process, once it has one."""
        with self._changed:
            assert self._changed.wait_for(lambda: name in self._codes, seconds), f"{name} does not end"
            return self._codes[name]

    def _notify(self, what: str, path: str, document: Document) -> None:
        document["metadata"]["resourceVersion"] = str(len(self._events) + 1)
        document["_path"] = path
        self.objects[path] = document
        self._events.append((what, json.loads(json.dumps(document))))
        self._changed.notify_all()

    def _run(self, path: str, pod: Document) -> None:
        """A node's work for a pod: waits for its volumes, runs it, and reports how it ended."""
        name, spec = pod["metadata"]["name"], pod["spec"]
        self.specs[name] = spec
        (container,) = spec["containers"]
        maps = [each["configMap"]["name"] for each in spec.get("volumes", ()) if "configMap" in each]
        with self._changed:
            address = self._addresses.setdefault(name, f"127.0.0.{10 + len(self._addresses)}")
            there = [f"{NAMESPACE}configmaps/{each}" for each in maps]
            assert self._changed.wait_for(lambda: all(each in self.objects for each in there), 120), maps
        place = self._place / name
        place.mkdir()
        self._write_hosts()
        facts = {"status.podIP": address, "metadata.name": name, "metadata.namespace": "default"}
        message = {"PATH": os.environ["PATH"], **self._environment}
        message |= {each["name"]: self._value(each, facts) for each in container.get("env", ())}
        words = [*container.get("command", [self._entrypoint]), *container.get("args", ())]
        self.outputs[name] = place / "output"
        with self.outputs[name].open("wb") as output:
            process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", self._script(place, spec), "sh", *words],
                stdout=output, stderr=output, env=message, start_new_session=True,
            )  # fmt: skip
        self._processes[name] = process
        self._state(path, "Running", {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, address)
        code = process.wait()
        self._state(path, "Failed" if code else "Succeeded", {"terminated": {"exitCode": code}}, address)
        with self._changed:
            self._codes[name] = code
            self._changed.notify_all()

    def _script(self, place: Path, spec: Document) -> str:
        """A script that makes the pod's disk, and becomes its command."""
        (container,) = spec["containers"]
        script = ["set -e", "mount -t tmpfs none /opt", "mount -t tmpfs none /var", "mkdir /var/tmp", self._image]
        for volume in spec.get("volumes", ()):
            self._fill(volume, place / volume["name"])
        for mount in container.get("volumeMounts", ()):
            source, target = (shlex.quote(str(each)) for each in (place / mount["name"], mount["mountPath"]))
            script.append(f"mkdir -p {target}; mount --bind {source} {target}")
        script.append(f"mount --bind {shlex.quote(str(place / 'hosts'))} /etc/hosts")
        return "\n".join([*script, "cd /var/tmp", 'exec "$@"'])

    def _write_hosts(self) -> None:
        """Write the names of services for all pods: the address of the pod that a service selects."""
        lines = [HOSTS]
        with self._changed:
            for service in self.listed("services", {}):
                for pod in self.listed("pods", {}):
                    name = pod["metadata"]["name"]
                    chosen = service["spec"]["selector"].items() <= pod["metadata"].get("labels", {}).items()
                    if chosen and name in self._addresses:
                        lines.append(f"{self._addresses[name]} {service['metadata']['name']}.default.svc\n")
            for name in self._addresses:
                if (self._place / name).is_dir():
                    # In place, because it is mounted.
                    (self._place / name / "hosts").write_text("".join(lines))

    def _state(self, path: str, phase: str, state: Document, address: str) -> None:
        with self._changed:
            pod = self.objects.get(path)
            if pod is None:
                return
            (container,) = pod["spec"]["containers"]
            status = {
                "name": container["name"],
                "image": container["image"],
                "ready": phase == "Running",
                "state": state,
            }
            pod = {**pod, "metadata": dict(pod["metadata"])}
            pod["status"] = {"phase": phase, "podIP": address, "containerStatuses": [{**status, "restartCount": 0}]}
            self._notify("MODIFIED", path, pod)

    def _fill(self, volume: Document, place: Path) -> None:
        place.mkdir()
        if "configMap" in volume:
            found = self.objects[f"{NAMESPACE}configmaps/{volume['configMap']['name']}"]
            data = found.get("data", {})
            for item in volume["configMap"].get("items", [{"key": key, "path": key} for key in data]):
                (place / item["path"]).write_text(data[item["key"]])
        else:
            assert "emptyDir" in volume, volume

    def _value(self, message: Document, facts: Mapping[str, str]) -> str:
        source = message.get("valueFrom", {})
        if "fieldRef" in source:
            return facts[source["fieldRef"]["fieldPath"]]
        if "secretKeyRef" in source:
            secret = self.objects[f"{NAMESPACE}secrets/{source['secretKeyRef']['name']}"]
            return str(secret["stringData"][source["secretKeyRef"]["key"]])
        return str(message.get("value", ""))

    def _kill(self, name: str) -> None:
        process = self._processes.get(name)
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _chosen(each: Document, query: Mapping[str, list[str]]) -> bool:
    labels = each["metadata"].get("labels", {})
    for message in query.get("fieldSelector", ()):
        if message != f"metadata.name={each['metadata']['name']}":
            return False
    for message in ",".join(query.get("labelSelector", ())).split(",") if query.get("labelSelector") else ():
        key, _, value = message.partition("=")
        if message.startswith("!") or key.endswith("!"):
            if labels.get(key.strip("!")) in ([value] if value else labels.values()):
                return False
        elif labels.get(key) != value.lstrip("="):
            return False
    return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    kubernetes: Kubernetes

    def _body(self) -> Document:
        found: Document = yaml.safe_load(self.rfile.read(int(self.headers.get("Content-Length", 0)))) or {}
        return found

    def _place(self) -> tuple[str, str, str, dict[str, list[str]]]:
        split = urlsplit(self.path)
        found = re.fullmatch(rf"{NAMESPACE}([a-z]+)(?:/([^/]+))?(?:/status)?", split.path)
        kind, name = (found[1], found[2] or "") if found else ("", "")
        return split.path, kind, name, parse_qs(split.query)

    def _requested(self, command: str, kind: str) -> None:
        if kind:
            self.kubernetes.question.add((command, kind))

    def do_GET(self) -> None:
        path, kind, name, query = self._place()
        if query.get("watch") == ["true"] or "upgrade" in self.headers.get("Connection", "").lower():
            self._requested("watch", kind)
            self._watch(kind, query)
        elif not kind:
            self._answer(200, {"major": "1", "minor": "37", "groups": [], "kind": "APIGroupList", "apiVersion": "v1"})
        elif name:
            self._requested("get", kind)
            found = self.kubernetes.objects.get(path)
            self._answer(*((200, found) if found else (404, {"kind": "Status", "code": 404, "reason": "NotFound"})))
        else:
            self._requested("list", kind)
            items = self.kubernetes.listed(kind, query)
            self._answer(
                200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
            )

    def _watch(self, kind: str, query: Mapping[str, list[str]]) -> None:
        if "websocket" in self.headers.get("Upgrade", "").lower():
            self._answer(503, {"kind": "Status", "code": 503, "message": "no websockets here"})
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        seen = 0
        try:
            while True:
                seen, events = self.kubernetes.events(seen, kind, query)
                for event in events:
                    data = json.dumps(event).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()
        except OSError:
            self.close_connection = True

    def do_POST(self) -> None:
        _, kind, _, _ = self._place()
        self._requested("create", kind)
        self._answer(201, self.kubernetes.put(kind, self._body()))

    def do_PUT(self) -> None:
        _, kind, _, _ = self._place()
        self._requested("update", kind)
        self._answer(200, self.kubernetes.put(kind, self._body()))

    def do_PATCH(self) -> None:
        path, kind, _, _ = self._place()
        self._requested("patch", kind)
        found = self.kubernetes.objects.get(path)
        body = self._body()
        merged = (
            body if found is None else {**found, **body, "metadata": {**found["metadata"], **body.get("metadata", {})}}
        )
        self._answer(200, self.kubernetes.put(kind, merged))

    def do_DELETE(self) -> None:
        path, kind, name, query = self._place()
        self._requested("delete" if name else "deletecollection", kind)
        self._body()
        for each in [path] if name else [each["_path"] for each in self.kubernetes.listed(kind, query)]:
            self.kubernetes.delete(each)
        self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _answer(self, status: int, document: Document) -> None:
        data = json.dumps({key: value for key, value in document.items() if key != "_path"}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
