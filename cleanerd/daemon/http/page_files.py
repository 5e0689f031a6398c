"""The files of the status page, read once at the start: answering a request reads no disk."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Final

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

INDEX: Final = "index.html"
_BASE: Final = b'<base href="./">'


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file as it is sent: ``etag`` changes with its content."""

    body: bytes
    zipped: bytes
    content_type: str
    etag: str

    @classmethod
    def of(cls, body: bytes, content_type: str) -> PageFile:
        return cls(body, gzip.compress(body, mtime=0), content_type, hashlib.sha256(body).hexdigest()[:20])


class PageFiles:
    """All files of the page, by name.

    The page's links are relative to its ``<base>``, so it also works behind a proxy with a path prefix.
    """

    def __init__(self) -> None:
        self._files: dict[str, PageFile] = {}
        for entry in resources.files("cleanerd.daemon.http").joinpath("page").iterdir():
            content_type = _TYPES.get(entry.name.rpartition(".")[2])
            if content_type is not None:
                self._files[entry.name] = PageFile.of(entry.read_bytes(), content_type)
        index = self._files.pop(INDEX)
        self._index = (index, PageFile.of(index.body.replace(_BASE, b'<base href="../">'), index.content_type))

    def get(self, name: str) -> PageFile | None:
        """A file beside the index."""
        return self._files.get(name)

    def index(self, *, depth: int) -> PageFile:
        """The page itself, for an address ``depth`` (0 or 1) directories deep."""
        return self._index[depth]
