"""``make screenshots``: the pictures of the pages, from the demonstration's own data, into the argument's directory.

The live part of the demonstration runs - a broker with the agent, producers out of order, ``cleanerd run`` - until the
daemon has cleaned for a while; then Chromium opens its page. So a picture shows the current page.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd_lab.demo.jars import find_kafka
from cleanerd_lab.demo.live import BY_VERSION, LiveDemo
from tests.daemon.browser import chromium
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from cleanerd_lab.demo.jars import KafkaRelease
    from tests.daemon.browser import Page

MOST_BYTES: Final = 200 * 1024
"""The limit of a picture's size: the first page of the repository has to load at once."""

PICTURES: Final = {"status": "", "partition": f"partition/{BY_VERSION}-0"}
"""Name -> address on the page."""

_MOMENTS: Final = {
    "status": "!document.querySelector('#summary').innerText.includes('0 B dirty')",
    "partition": "document.querySelector('.title')?.innerText.includes('idle')"
    " && document.querySelector('.verdict')?.innerText.includes('not cleaned now')",
}
"""Name -> its condition: a list with dirty partitions, and a partition between two cleanings."""
WIDTH, HEIGHT = 1280, 760
_CLEANINGS: Final = 40
"""This many cleanings fill a page."""


def take(directory: Path, release: KafkaRelease) -> list[Path]:
    """Write every picture of :data:`PICTURES` into ``directory``; returns the paths.

    Raises: AssertionError: the daemon did not clean in time, or a picture is too large. CleanerdError: the
    demonstration could not be started.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="kafka-", ignore_cleanup_errors=True) as work_dir,
        LiveDemo(release, Path(work_dir), seed=1) as live,
        chromium() as page,
    ):
        live.start()
        reached = any(sample.cleanings >= _CLEANINGS for sample in live.watch(PATIENCE_SECONDS))
        assert reached, f"not {_CLEANINGS} cleanings in {PATIENCE_SECONDS} s"
        return [_picture(page, live.url, directory / f"{name}.png", address) for name, address in PICTURES.items()]


def _picture(page: Page, url: str, path: Path, address: str) -> Path:
    page.set_window(width=WIDTH, height=HEIGHT)
    page.open(url + address)
    page.wait("document.querySelector('main').innerText.trim().length > 200")
    # The page reads the status every 2 s, which can keep in step with the producers and always miss a cleaning.
    page.wait(f"dispatchEvent(new Event('stale-status')) && {_MOMENTS[path.stem]}")
    page.shoot(path)
    assert path.stat().st_size < MOST_BYTES, f"{path}: {path.stat().st_size} bytes"
    return path


def main(arguments: list[str]) -> None:
    """Write them into the given directory."""
    for path in take(Path(arguments[0]), find_kafka(None)):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
