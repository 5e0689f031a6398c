"""Mistakes with the agent on the loopback: in its Java, which is built and loaded, and in cleanerd."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SOURCES = "agent/src/cleanerd/agent"
CLIENT = "cleanerd/broker/agent_transport.py"
BROKER = "tests/agent/test_loopback.py"
ANNOUNCED = "tests/agent/test_announcement.py"
WRITTEN_AGAIN = """\
        Files.deleteIfExists(fresh);
        try {
            // CREATE_NEW is O_EXCL: a link or file that another user creates at this moment is not used.
            try (FileChannel file = FileChannel.open(fresh, Set.of(StandardOpenOption.CREATE_NEW, """
"""the written file is cleanerd's own"""

AGENTS_LOOPBACK = (
    Mutant(
        "agent-listens-on-every-address",
        "A-33",
        f"{SOURCES}/Announcement.java",
        "new byte[] {127, 0, 0, 1}",
        "new byte[] {0, 0, 0, 0}",
        (f"{BROKER}::test_the_port_and_its_announcement",),
    ),
    Mutant(
        "agent-announces-to-all-users",
        "A-33",
        f"{SOURCES}/Announcement.java",
        '"rw-------"',
        '"rw-r--r--"',
        (f"{BROKER}::test_the_port_and_its_announcement",),
    ),
    Mutant(
        "agent-follows-a-planted-link",
        "A-33",
        f"{SOURCES}/Announcement.java",
        WRITTEN_AGAIN,
        WRITTEN_AGAIN.replace("        Files.deleteIfExists(fresh);\n", "").replace("CREATE_NEW, ", "CREATE, "),
        (f"{BROKER}::test_a_deleted_or_replaced_announcement",),
    ),
    Mutant(
        "agent-replaces-a-file-in-use",
        "A-33",
        f"{SOURCES}/LoopbackListener.java",
        "if (Announcement.answers(path)) {",
        "if (!path.isAbsolute()) {",
        (f"{BROKER}::test_a_place_where_another_agent_answers",),
    ),
    Mutant(
        "agent-requires-no-proof",
        "A-34",
        f"{SOURCES}/Handshake.java",
        "if (!Proof.same(buffer.array(), expected)) {",
        "if (expected.length == 0) {",
        (f"{BROKER}::test_a_request_without_a_valid_proof_is_refused",),
    ),
    Mutant(
        "agent-draws-no-number",
        "A-34",
        f"{SOURCES}/Handshake.java",
        "byte[] mine = Proof.randomBytes(Proof.NUMBER_BYTES);",
        "byte[] mine = new byte[Proof.NUMBER_BYTES];",
        (f"{BROKER}::test_a_request_without_a_valid_proof_is_refused",),
    ),
    Mutant(
        "agent-waits-for-any-number",
        "A-35",
        f"{SOURCES}/LoopbackListener.java",
        "if (unproven.size() > MOST_UNPROVEN) {",
        "if (unproven.size() > 1000 * MOST_UNPROVEN) {",
        (f"{BROKER}::test_a_hundred_silent_clients",),
    ),
    Mutant(
        "agent-waits-indefinitely",
        "A-35",
        f"{SOURCES}/LoopbackListener.java",
        "unproven.peek().isLate(now)",
        "unproven.peek().isLate(0)",
        (f"{BROKER}::test_a_silent_client_is_disconnected",),
    ),
)

LOOPBACK = (
    Mutant(
        "the-agent-proves-nothing",
        "A-34",
        CLIENT,
        "if not hmac.compare_digest(proof, _proof(secret, _AGENT, mine, theirs)):",
        "if len(proof) > 1 << 20:",
        (f"{ANNOUNCED}::test_the_secret_is_never_sent",),
    ),
    Mutant(
        "one-sides-proof-is-the-others",
        "A-34",
        CLIENT,
        '_AGENT: Final = b"cleanerd-agent 1: agent"',
        '_AGENT: Final = b"cleanerd-agent 1: client"',
        (f"{ANNOUNCED}::test_a_listener_that_returns_the_received_bytes",),
    ),
    Mutant(
        "the-number-is-not-drawn",
        "A-34",
        CLIENT,
        "mine = secrets.token_bytes(_NUMBER_BYTES)",
        "mine = bytes(_NUMBER_BYTES)",
        (f"{ANNOUNCED}::test_a_listener_that_returns_the_received_bytes",),
    ),
    Mutant(
        "a-secret-that-others-can-read",
        "A-33",
        CLIENT,
        "found.st_mode & 0o077",
        "found.st_mode & 0o007",
        (f"{ANNOUNCED}::test_invalid_announcement_files",),
    ),
    Mutant(
        "any-users-announcement-is-accepted",
        "A-29",
        CLIENT,
        "if found.st_uid not in {0, os.geteuid(), owner}:",
        "if found.st_uid < 0:",
        (f"{ANNOUNCED}::test_an_announcement_of_another_user_is_rejected",),
    ),
    Mutant(
        "an-announcement-with-two-names",
        "A-33",
        CLIENT,
        "open_to_read(os.fspath(path), one_name=True)",
        "open_to_read(os.fspath(path))",
        (f"{ANNOUNCED}::test_links_are_not_followed",),
    ),
    Mutant(
        "a-port-of-another-network",
        "A-33",
        CLIENT,
        "announced.network != ours:",
        'announced.network == "":',
        (f"{ANNOUNCED}::test_invalid_announcement_files",),
    ),
)
