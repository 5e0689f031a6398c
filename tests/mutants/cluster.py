"""Mistakes in combining all daemons of a cluster."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CLUSTER = (
    Mutant(
        "another-cluster-is-compared",
        "OP-25",
        "cleanerd/admin/cluster_compare.py",
        "if found and expected not in found",
        "if found and not expected",
        ("tests/cli/test_cluster.py::test_a_daemon_of_another_cluster",),
    ),
    Mutant(
        "most-of-the-daemons-outweigh-the-cluster",
        "OP-25",
        "cleanerd/admin/cluster_compare.py",
        "expected = cluster_id or next(",
        "expected = next(",
        ("tests/cli/test_cluster.py::test_a_daemon_of_another_cluster",),
    ),
    Mutant(
        "a-broker-that-is-down-is-well",
        "OP-25",
        "cleanerd/admin/cluster_compare.py",
        "if self.down or any(",
        "if any(",
        ("tests/cli/test_cluster.py::test_tombstones_erasures_and_brokers_that_are_down",),
    ),
    Mutant(
        "tombstones-are-held-before-their-horizon",
        "OP-25",
        "cleanerd/admin/cluster_compare.py",
        "if waits_for and due_ms is not None and int(due_ms) <= made_ms[target]:",
        "if waits_for and due_ms is not None:",
        ("tests/cli/test_cluster.py::test_tombstones_erasures_and_brokers_that_are_down",),
    ),
    Mutant(
        "another-host-commands-the-terminal",
        "OP-25",
        "cleanerd/admin/cluster_compare.py",
        'return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)',
        "return text",
        ("tests/cli/test_cluster.py::test_no_line_is_wider_than_80_columns",),
    ),
    Mutant(
        "a-status-is-markup",
        "OP-25",
        "cleanerd/daemon/http/server.py",
        'html.escape(as_utf8("\\n".join(lines)))',
        'as_utf8("\\n".join(lines))',
        ("tests/cli/test_cluster.py::test_the_page_of_the_cluster",),
    ),
    Mutant(
        "an-excluded-topic-would-be-saved",
        "OP-26",
        "cleanerd/admin/cluster_compare.py",
        'if entry["state"] != "excluded":',
        'if entry["state"]:',
        ("tests/cli/test_cluster.py::test_reclaimable_bytes_of_the_whole_cluster",),
    ),
    Mutant(
        "a-late-status-is-waited-for",
        "OP-25",
        "cleanerd/admin/peers.py",
        "thread.join(max(0.0, deadline - time.monotonic()))",
        "thread.join()",
        ("tests/cli/test_cluster.py::test_the_others_are_shown",),
    ),
    Mutant(
        "a-status-leads-elsewhere",
        "OP-25",
        "cleanerd/admin/peers.py",
        "build_opener(urllib.request.ProxyHandler({}), _NoRedirect)",
        "build_opener(urllib.request.ProxyHandler({}))",
        ("tests/cli/test_cluster.py::test_the_others_are_shown",),
    ),
    Mutant(
        "a-removed-broker-is-forgotten",
        "U-79",
        "cleanerd/admin/peers.py",
        "self._found |= dict(found.addresses)",
        "self._found = dict(found.addresses)",
        ("tests/admin/test_peers.py::test_daemons_that_are_found_by_a_port",),
    ),
    Mutant(
        "another-clusters-daemons-are-peers",
        "U-79",
        "cleanerd/admin/peers.py",
        "if found.cluster_id != cluster_id:",
        "if not found.cluster_id:",
        ("tests/admin/test_peers.py::test_daemons_that_are_found_by_a_port",),
    ),
    Mutant(
        "the-cluster-page-shows-an-old-view-of-its-own-daemon",
        "OP-25",
        "cleanerd/daemon/service.py",
        "        if known is not None and known[0] is view and known[1] is others:\n",
        "        if known is not None and known[1] is others:\n",
        ("tests/daemon/test_cluster_page.py::test_two_daemons",),
    ),
)
