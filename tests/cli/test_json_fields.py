"""Every field of a --json result has a type and a meaning on the page of JSON fields, and the page has no other."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.admin.cluster_compare import DaemonAnswer, TopicSaving, compare
from cleanerd.admin.delegate import DelegateResult
from cleanerd.cleaner.result import CleaningResult
from cleanerd.cli.main import run
from cleanerd.daemon.view import CanaryView, ErasureView
from cleanerd.errors import CleanerdError
from cleanerd.format.names import TopicPartition
from cleanerd.policy.state_digest import StateDigest
from cleanerd.swap.undo import UndoResult
from cleanerd.verify.finding import Finding, Severity
from cleanerd.verify.kinds import FindingKind
from tests.daemon.views import busy, clean, partition
from tests.verify.cleaned_partition import make_scene
from tools.reference import json_objects

if TYPE_CHECKING:
    from pathlib import Path

STATUS = "`status` and `/status`"


def shown(title: str, *documents: dict[str, Any], may_lack: frozenset[str] = frozenset()) -> None:
    """``documents`` together have the fields of the object ``title``.

    ``may_lack``: those that only other cases have.
    """
    names = {name for name, _, _ in json_objects()[title]}
    found = {name for document in documents for name in document} - {"schema"}
    assert found <= names, f"{title}: without a meaning: {sorted(found - names)}"
    assert names - found <= may_lack, f"{title}: not in the result: {sorted(names - found - may_lack)}"


def test_each_field_has_a_type_and_a_meaning() -> None:
    for title, rows in json_objects().items():
        assert rows, title
        assert len({name for name, _, _ in rows}) == len(rows), title
        assert all(cell and "{" not in cell for row in rows for cell in row), title


def test_status() -> None:
    canary = CanaryView("2", 1, 2, 3)
    erasures = (ErasureView("i", "t", 1, 2, {"t-0": ("dirty", "")}),)
    document = replace(busy(), canary=canary, erasures=erasures).to_json()
    shown(STATUS, document, may_lack=frozenset({"matching_partitions"}))
    shown(f"{STATUS}: an entry of `partitions`", *document["partitions"])
    shown(f"{STATUS}: `quarantine` of a partition", *filter(None, (p["quarantine"] for p in document["partitions"])))
    shown(f"{STATUS}: an entry of `digests`", *partition(digests=(StateDigest(0, 1, "0", 1),)).to_json()["digests"])
    for name in ("log_dirs", "running", "erasures"):
        shown(f"{STATUS}: an entry of `{name}`", *document[name])
    for name in ("totals", "trend", "canary"):
        shown(f"{STATUS}: `{name}`", document[name])
    shown(f"{STATUS}: an entry of `history`", clean().to_json())


def test_a_cleaning() -> None:
    result = CleaningResult(TopicPartition("orders", 0), "/d", "cleaned")
    shown("`clean`, `stage`, `apply` and `spark clean`: an entry of `partitions`", result.to_json())


def test_results_that_need_more_than_a_log() -> None:
    name = TopicPartition("orders", 0)
    shown("Errors: `error`, and an entry of `errors`", CleanerdError("m").to_json())
    shown("`undo`: an entry of `partitions`", UndoResult(name, "/d", "p", "undone").to_json())
    shown("`verify`: an entry of `findings`", Finding(Severity.ERROR, FindingKind.NO_SEGMENT, "f", 0, 0, "w").to_json())
    compared = compare([DaemonAnswer("kafka-1:10280", None, "refused")], ())
    shown("`cluster status` and `/cluster.json`", compared.to_json())
    shown("`cluster status`: an entry of `rows`", *compared.to_json()["rows"])
    shown("`cluster plan`: an entry of `topics`", asdict(TopicSaving("t", 1, 1, 0, 1, 1, 1, 1, 1)))
    delegated = DelegateResult("t", "c", "delegated", {}, ())
    shown("`delegate` and `undelegate`", delegated.to_json(dry_run=False))


class Commands:
    """Command lines about a cleaned partition."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.scene = make_scene(root)
        self._state = f"cleanerd.state.dir={root / 'state'}"
        self._capsys = capsys

    def __call__(self, *words: object) -> dict[str, Any]:
        run(
            [
                *map(str, words),
                "--json",
                "--quiet",
                "--set",
                self._state,
                "--set",
                "topics.orders.cleanup.policy=compact",
            ]
        )
        document: dict[str, Any] = json.loads(self._capsys.readouterr().out)
        assert "error" not in document, document
        return document


@pytest.fixture
def commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    return Commands(tmp_path, capsys)


def test_commands_that_read(commands: Commands) -> None:
    logs = commands.scene.log_dir
    plan = commands("plan", logs, "--exact", "--force", "--from-start")
    switched = commands("plan", logs, "--strategy", "timestamp")
    shown("`plan`", plan)
    shown(
        "`plan`: an entry of `partitions`", *plan["partitions"], *switched["partitions"], may_lack=frozenset({"daemon"})
    )
    shown("`plan`: `exact`, and the counts in `switch`", plan["partitions"][0]["exact"])
    shown("`explain`", commands("explain", "orders-0", logs), may_lack=frozenset({"daemon"}))
    verified = commands("verify", logs)
    shown("`verify`", verified)
    shown("`verify`: an entry of `verified`", *verified["verified"])
    shown("`doctor`", commands("doctor", logs))
    audit = commands("audit", "orders-0", logs, "--key", "f", "--key-prefix", "f")
    shown("`audit`", audit)
    shown(
        "`audit`: an entry of `occurrences`", *audit["keys"][0]["occurrences"], *audit["key_prefixes"][0]["occurrences"]
    )
    erase = commands("erase", "plan", "orders", logs, "--key", "f")
    shown("`erase plan`", erase)
    shown("`erase plan`: an entry of `copies`", *erase["partitions"][0]["copies"])


@pytest.mark.slow
def test_spark_commands(commands: Commands, tmp_path: Path) -> None:
    """These start no Spark: the log is small."""
    logs, copy = commands.scene.log_dir, commands.scene.copy.parent
    shown("`spark profile`: an entry of `partitions`", *commands("spark", "profile", logs)["partitions"])
    audit = commands("spark", "audit", copy, logs)
    shown("`spark audit`", audit)
    shown("`spark audit`: an entry of `partitions`", *audit["partitions"])
    shown("`spark audit`: `before` and `after`", audit["partitions"][0]["before"])
    shown("`spark audit --key`", commands("spark", "audit", logs, "--key", "f"))
    differing = commands("spark", "divergence", logs, copy)
    shown("`spark divergence`", differing)
    shown("`spark divergence`: an entry of `partitions`", *differing["partitions"])
    taken = commands("spark", "snapshot", logs, "--out", tmp_path / "out")
    merged = frozenset({"written", "removed", "undecoded", "begin_offset"})
    shown("`spark snapshot`", taken, may_lack=merged)
    shown("`spark snapshot`: an entry of `partitions`", *taken["partitions"], may_lack=merged)
