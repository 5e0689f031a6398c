"""U-6: which changes of the compaction settings are refused, and what counts as a confirmation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.rules_change import RulesChange, rules_change
from cleanerd.cleaner.verdict import of_rules
from cleanerd.config.fingerprint import (
    KAFKAS_FINGERPRINT,
    describe_fingerprint,
    describe_settings,
    fingerprint,
)
from cleanerd.config.topic_config import read_key, resolve_topic_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cleanerd.config.topic_config import TopicConfig

HEADER = {"compaction.strategy": "header", "compaction.strategy.header": "version"}
MARKED = {"tombstone.mode": "header", "tombstone.header": "deleted"}
DELEGATED_IN_CLUSTER = {"min.cleanable.dirty.ratio": "1.0", "max.compaction.lag.ms": str(2**63 - 1)}
BY_HEADER = "strategy=header;header=version;encoding=long;tombstone.mode=null"
BY_TIMESTAMP = "strategy=timestamp;tombstone.mode=null"


def config(
    own: Mapping[str, str] | None = None,
    *,
    broker: Mapping[str, str] | None = None,
    delegated: bool = False,
    cluster: Mapping[str, str] | None = None,
) -> TopicConfig:
    """``own``: set for the topic in cleanerd's settings; ``broker``: for all topics; ``cluster``: on the topic."""
    return resolve_topic_config(
        "stock",
        overrides={key: read_key(key, value, "--set") for key, value in (own or {}).items()},
        topic_configs={"cleanup.policy": "compact", **(cluster or {})},
        settings_defaults={key: read_key(key, value, "file x") for key, value in (broker or {}).items()},
        saved={} if delegated else None,
    )


@pytest.mark.parametrize(
    ("now", "before", "refused"),
    [
        pytest.param(config(), None, False, id="nothing is known"),
        pytest.param(config(), KAFKAS_FINGERPRINT, False, id="nothing changed"),
        pytest.param(config(), BY_HEADER, True, id="settings are forgotten"),
        pytest.param(config({"compaction.strategy": "offset"}), BY_HEADER, False, id="settings name another strategy"),
        pytest.param(config(HEADER), BY_HEADER, False, id="the same header"),
        pytest.param(config(HEADER), KAFKAS_FINGERPRINT, False, id="forgetting never leads away from offset"),
        pytest.param(config({**HEADER, "compaction.strategy.header": "v2"}), BY_HEADER, False, id="header is named"),
        pytest.param(
            config({"compaction.strategy": "header"}, broker={"log.cleaner.compaction.strategy.header": "v2"}),
            BY_HEADER,
            True,
            id="another header, of all topics",
        ),
        pytest.param(config({"compaction.strategy": "header"}), BY_HEADER, True, id="the header's name is forgotten"),
        pytest.param(
            config(HEADER),
            BY_HEADER.replace("encoding=long", "encoding=varlong"),
            True,
            id="the encoding is forgotten",
        ),
        pytest.param(
            config({**HEADER, "compaction.strategy.header.encoding": "long"}),
            BY_HEADER.replace("encoding=long", "encoding=varlong"),
            False,
            id="the encoding is named",
        ),
        pytest.param(
            config(broker={"log.cleaner.compaction.strategy": "timestamp"}), BY_HEADER, True, id="what all topics have"
        ),
        pytest.param(config(HEADER), f"{BY_HEADER[:-4]}flag", True, id="the tombstone mode is forgotten"),
        pytest.param(config({**HEADER, "tombstone.mode": "null"}), f"{BY_HEADER[:-4]}flag", False, id="mode named"),
        pytest.param(
            config({"compaction.strategy": "offset"}),
            "strategy=offset;tombstone.mode=header;tombstone.header=deleted",
            True,
            id="offset is named, the lost tombstone mode is not",
        ),
        pytest.param(
            config({"compaction.strategy": "timestamp"}),
            f"{BY_HEADER[:-4]}flag",
            True,
            id="one of two changes is named",
        ),
        pytest.param(
            config(MARKED | {"tombstone.header": "gone"}),
            "strategy=offset;tombstone.mode=header;tombstone.header=deleted",
            False,
            id="another tombstone header, named",
        ),
        pytest.param(config(), "", True, id="a state file that does not say"),
        pytest.param(config(), "damaged", True, id="a state file that says nothing known"),
        pytest.param(config(delegated=True), None, True, id="delegated, never cleaned"),
        pytest.param(config(delegated=True), KAFKAS_FINGERPRINT, True, id="delegated since a cleaning by offset"),
        pytest.param(config(HEADER, delegated=True), None, False, id="delegated, with its strategy"),
        pytest.param(
            config({"tombstone.mode": "flag"}, delegated=True), None, False, id="delegated for its tombstones"
        ),
        pytest.param(
            config({"compaction.strategy": "offset"}, delegated=True), None, False, id="delegated, offset is named"
        ),
        pytest.param(
            config({"compaction.strategy": "offset"}, delegated=True),
            BY_HEADER,
            False,
            id="delegated, offset after all",
        ),
        pytest.param(config(cluster=DELEGATED_IN_CLUSTER), None, True, id="U-96: looks delegated"),
        pytest.param(
            config(cluster=DELEGATED_IN_CLUSTER),
            KAFKAS_FINGERPRINT,
            True,
            id="U-96: looks delegated, cleaned by offset",
        ),
        pytest.param(
            config({"compaction.strategy": "offset"}, cluster=DELEGATED_IN_CLUSTER),
            None,
            False,
            id="U-96: offset is named",
        ),
        pytest.param(config(HEADER, cluster=DELEGATED_IN_CLUSTER), None, False, id="U-96: with its strategy"),
        pytest.param(
            config(cluster={"min.cleanable.dirty.ratio": "1"}), None, False, id="U-96: a ratio of 1 proves nothing"
        ),
        pytest.param(
            config(cluster={"max.compaction.lag.ms": str(2**63 - 1)}), None, False, id="U-96: no lag proves nothing"
        ),
    ],
)
def test_an_unconfirmed_change_of_settings_is_refused(now: TopicConfig, before: str | None, refused: bool) -> None:
    """U-6: a fallback to Kafka's strategy is refused, and so is any compaction setting that is not configured."""
    verdict = of_rules(rules_change(now, before))
    assert (verdict is not None) == refused
    assert verdict is None or verdict.is_refusal


def test_the_message() -> None:
    """The former settings, the new settings, and the two solutions."""
    change = rules_change(config(delegated=True), BY_HEADER)
    assert change is not None
    assert change.reason == (
        "refused: stock is delegated and was last cleaned by header:version; these settings say offset "
        "(was --config forgotten? If not, use --change-strategy)"
    )
    never = rules_change(config(delegated=True), None)
    assert never is not None
    assert "refused: stock is delegated; these settings say offset" in never.reason
    assert not never.differs
    seen = rules_change(config(cluster=DELEGATED_IN_CLUSTER), BY_HEADER)
    assert seen is not None
    assert "refused: stock was last cleaned by header:version; these" in seen.reason
    assert not seen.delegated_in_cluster
    assert "refused: stock was last cleaned by timestamp; these" in RulesChange(
        "stock", BY_TIMESTAMP, KAFKAS_FINGERPRINT, delegated=False, is_stated=False
    ).reason  # fmt: skip


def test_the_message_about_a_delegation_that_only_the_cluster_shows() -> None:
    """U-96: a broker's defaults prove nothing; after ``undelegate`` the operator only has to wait."""
    named = "was --config or cleanerd.state.dir forgotten? If not, set topics.stock.compaction.strategy=offset"
    both = "min.cleanable.dirty.ratio=1 and max.compaction.lag.ms=9223372036854775807"
    for shown, words in (
        ("set", ("stock has", both, "in the cluster", "the state directory knows of no delegation", named)),
        (
            "reported",
            (
                f"the running broker reports {both} for stock",
                "or the broker's defaults set them, but the state directory knows",
                named,
            ),
        ),
        ("ended", ("stock was undelegated in the last minutes", "these settings say offset (try again later)")),
    ):
        change = rules_change(replace(config(), delegated_in_cluster=shown), None)
        assert change is not None
        for each in words:
            assert each in change.reason, shown
        assert ("forgotten" in change.reason) == (shown != "ended")
        assert change.remedy.startswith("a few minutes later, when the settings") == (shown == "ended")


@pytest.mark.parametrize(
    "settings",
    [{}, HEADER, {**HEADER, **MARKED}, {**HEADER, "compaction.strategy.header": "a;b%=c"}, {"tombstone.mode": "flag"}],
)
def test_a_fingerprint_is_reported_like_settings(settings: dict[str, str]) -> None:
    """U-6: stored settings are shown in the form of configured ones."""
    found = config(settings)
    assert describe_fingerprint(fingerprint(found)) == describe_settings(found)
