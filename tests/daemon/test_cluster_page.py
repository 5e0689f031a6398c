"""``/cluster`` of a running daemon: itself and the daemons of the other brokers (OP-25)."""

from __future__ import annotations

import asyncio
import urllib.request
from typing import TYPE_CHECKING

from cleanerd.daemon.http.server import HttpServer
from cleanerd_lab.demo.ports import free_port
from tests.daemon.service import assignments, control_requests, serve, until
from tests.daemon.serving import serving
from tests.daemon.views import log_dir as log_dir_view
from tests.daemon.views import partition, view
from tests.segments.metadata_logs import ID1
from tests.segments.replica_records import NO_OP, log_of
from tests.segments.replica_records import partition as partition_record
from tests.support.format_bytes import topic
from tests.support.log_dirs import CLUSTER_ID, make_log_dir
from tests.support.patience import PATIENCE_SECONDS
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.service import Service


def test_two_daemons(root: Path) -> None:
    """OP-25: the scan queries the other daemon. This daemon is shown as it is now, not as before that scan ended."""
    make_log_dir(root, {"orders-0": two_groups()})
    created = topic("orders", ID1), partition_record(ID1, 0, [1, 2], [1, 2])
    log_of(root / "__cluster_metadata-0", (0, created), (90, (NO_OP,)))
    shown = partition("orders", 0, first_dirty_offset=4, delegated=False)
    directory = log_dir_view(shown.log_dir, node_id=2, cluster_id=CLUSTER_ID)
    port = free_port()
    with serving(view(partitions=(shown,), log_dirs=(directory,))) as served:
        peers = f"2=127.0.0.1:{served.port}"

        async def story(service: Service) -> None:
            def text() -> str:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/cluster", timeout=60) as page:
                    return str(page.read().decode())

            await until("scanned", lambda: service.view().ready)  # the page is served before that
            async with asyncio.timeout(PATIENCE_SECONDS):
                while "of 2 answered" not in (page := await asyncio.to_thread(text)):
                    await asyncio.sleep(0.1)
            assert f"127.0.0.1:{served.port}" in page
            assert service.view().has_peers, "the status page links to it"
            assert 'href="./"' in page, "and back"
            assert "2 daemons of 2 answered" in page
            assert "not ready" not in page
            assert "paused" not in page
            await control_requests(root)("pause")
            assert "paused" in await asyncio.to_thread(text)
            assert "not delegated (1):" in page

        listen = f"127.0.0.1:{port}"
        serve(assignments(root, cleanerd_cluster_peers=peers, cleanerd_http_listen=listen), story, http=HttpServer)
