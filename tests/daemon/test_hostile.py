"""U-33: hostile files in one partition or in the state directory do not stop the cleaning of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.daemon.service import assignments, broker, is_clean, serve, until
from tests.support.hostile import SECRET, Victim, give_all, plant
from tests.support.root import needs_root

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.service import Service

pytestmark = needs_root

STATE = "state/partitions/AAAAAAAAAAAAAAAAANF-xw"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("logs/orders-0/.kstage", "link to a directory"),
        ("logs/orders-0/.kstage", "fifo"),
        ("logs/orders-0/.kstage/lock", "link"),
        ("logs/orders-0/.kstage/lock", "hard link"),
        ("logs/orders-0/.kstage/20260101t000000-0123abcd", "link to a directory"),
        ("logs/orders-0/.kstage/20260101t000000-0123abcd/manifest.json", "fifo"),
        ("logs/orders-0/.kstage/20260101t000000-0123abcd/ready.json", "link"),
        ("state/daemon.json", "fifo"),
        ("state/daemon.json", "link"),
        ("state/daemon.tmp", "link"),
        ("state/partitions", "link to a directory"),
        (STATE, "link to a directory"),
        (STATE, "fifo"),
    ],
)
def test_the_others_are_cleaned(tmp_path: Path, name: str, what: str) -> None:
    """A pipe blocks no scan and no worker, no link is followed, and none of the contents is shown."""
    root = tmp_path / "logs"
    victim = Victim.under(tmp_path)
    before = victim.state()
    shown = []

    async def story(service: Service) -> None:
        await until("the other one is clean", lambda: is_clean(service.view(), 8, "orders-1"))
        shown.append(repr(service.view()))

    with broker(root, 2):
        (tmp_path / "state").mkdir()
        for directory in ("logs", "state"):
            give_all(tmp_path / directory)
        plant(tmp_path / name, what, victim)
        serve(assignments(root, **{"topics.orders.cleanup.policy": "compact"}), story)
    assert victim.state() == before
    assert SECRET not in shown[0]
