"""Debian's Chromium, driven over its DevTools protocol with aiohttp, which the daemon needs anyway."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_KEYS = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "/": 191, "End": 35}
_CONSOLE = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")


class Page:
    """One tab. ``complaints``: the messages of its console; ``requests``: every address that it requested."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._loop = loop
        self._socket = socket
        self._ids = itertools.count(1)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and return its answer."""
        return self._loop.run_until_complete(asyncio.wait_for(self._call(method, parameters), PATIENCE_SECONDS))

    async def _call(self, method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        number = next(self._ids)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message = json.loads((await self._socket.receive()).data)
            if message.get("id") == number:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                answer: dict[str, Any] = message["result"]
                return answer
            self._note(message)

    def _note(self, message: Mapping[str, Any]) -> None:
        if message.get("method") in _CONSOLE:
            self.complaints.append(json.dumps(message["params"])[:2000])
        elif message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the expression is true."""
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({script})"):
            assert time.monotonic() < end, f"never true: {script}\n{self.run('document.body.innerText')[:3000]}"
            time.sleep(0.05)

    def open(self, url: str) -> None:
        """Open the address, and wait until the page shows the daemon's answer."""
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && document.querySelector('#footer')?.textContent")

    def set_window(self, *, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        """Set the window to a desktop's or a phone's size, and the system's theme."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 700
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])

    def press(self, key: str) -> None:
        """Press and release a key."""
        known: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": _KEYS.get(key, ord(key[0].upper()))}
        if len(key) == 1:
            known["text"] = key
        elif key == "Enter":
            known["text"] = "\r"
        self.call("Input.dispatchKeyEvent", type="keyDown", **known)
        self.call("Input.dispatchKeyEvent", type="keyUp", **known)

    def write(self, text: str) -> None:
        """Type text into the focused element."""
        self.call("Input.insertText", text=text)

    def shoot(self, path: Path) -> None:
        """Write a screenshot of the visible part."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextlib.contextmanager
def chromium() -> Iterator[Page]:
    """Start a headless browser with a profile of its own; it ends with all its processes and files."""
    program = shutil.which("chromium")
    assert program, "chromium is missing: bash tools/install-test-tools.sh"
    loop = asyncio.new_event_loop()
    profile = tempfile.mkdtemp(prefix="cleanerd-chromium-")
    arguments = [
        "--headless=new", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--remote-debugging-port=0", f"--user-data-dir={profile}",
        *(["--no-sandbox"] if os.geteuid() == 0 else []), "about:blank",
    ]  # fmt: skip
    process = loop.run_until_complete(
        asyncio.create_subprocess_exec(
            program, *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
    )
    try:
        session = loop.run_until_complete(_session())
        try:
            yield Page(loop, loop.run_until_complete(_socket(session, Path(profile))))
        finally:
            loop.run_until_complete(session.close())
    finally:
        process.terminate()
        loop.run_until_complete(asyncio.wait_for(process.wait(), PATIENCE_SECONDS))
        loop.close()
        shutil.rmtree(profile, ignore_errors=True)


async def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession()


async def _socket(session: aiohttp.ClientSession, profile: Path) -> aiohttp.ClientWebSocketResponse:
    reported = profile / "DevToolsActivePort"
    tabs: list[str] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not tabs:  # it listens before it has a page
            await asyncio.sleep(0.05)
            if reported.exists() and (port := re.match(r"(\d+)\n", reported.read_text())):
                async with session.get(f"http://127.0.0.1:{port[1]}/json/list") as answer:
                    tabs = [each["webSocketDebuggerUrl"] for each in await answer.json() if each["type"] == "page"]
    return await session.ws_connect(tabs[0], max_msg_size=0)
