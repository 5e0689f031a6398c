"""The report of ``cleanerd demo`` on the topic with versions."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from cleanerd.humanize import human_count
from cleanerd_lab.demo.strategies import STRATEGY, TOPIC

if TYPE_CHECKING:
    from cleanerd_lab.demo.page import Page
    from cleanerd_lab.demo.strategies import Compared, DayLater, Delegated


def report_race(page: Page, delegated: Delegated) -> None:
    """Step: the topic, its delegation, the race."""
    keys = "\n".join(f"   {key} = {value}" for key, value in STRATEGY.items())
    changes = "\n".join(f"   {key} = {value}" for key, value in delegated.changes.items())
    page.print(
        f"Topic {TOPIC}: the highest version in a header is kept, whatever the order of arrival (KIP-280):\n{keys}\n"
        f"After `cleanerd delegate {TOPIC}`, Kafka's cleaner skips the topic from its first record on:\n{changes}"
    )
    facts = delegated.facts
    page.table(
        ("acknowledged", "keys", "out of order", "equal versions", "without version", "deletes", "keys deleted"),
        [
            [
                human_count(facts.records),
                human_count(facts.keys),
                human_count(facts.out_of_order),
                human_count(facts.equal),
                human_count(facts.without_version),
                human_count(facts.deletes),
                human_count(facts.deleted_keys),
            ]
        ],
    )


def report_cleaned(page: Page, entry: dict[str, Any]) -> None:
    """Part of the cleaning's step."""
    page.print(
        f"A second run for {TOPIC}, by {entry['strategy']}: {human_count(entry['records_read'])} records read, "
        f"{human_count(entry['removed']['superseded'])} superseded, {human_count(entry['records_kept'])} kept."
    )


def report_compared(page: Page, compared: Compared) -> None:
    """Step: which reader is right."""
    page.print(
        "Each key's value, compared with a dict that keeps the highest version of each key. Among equal versions the "
        "last record is kept. A record without a version loses against every version. Kafka keeps the last record, "
        "whatever its version."
    )
    page.table(
        ("log", "read with", "records", "keys wrong", "outdated value", "deleted, but back", "alive, but gone"),
        [
            [
                view.log,
                view.reader,
                human_count(view.records),
                human_count(view.wrong.keys),
                human_count(view.wrong.other_value),
                human_count(view.wrong.deleted_but_back),
                human_count(view.wrong.live_but_gone),
            ]
            for view in compared.views
        ],
    )
    page.print(
        "cleanerd kept exactly the records that LatestState had listed before the cleaning, with the same offsets."
        if compared.as_promised
        else "cleanerd did NOT keep the records that LatestState had listed before the cleaning."
    )
    if not compared.kafka_by_its_rules:
        page.print("Kafka's cleaner did NOT keep the last record of each key, so this comparison is invalid.")


def report_day_later(page: Page, later: DayLater) -> None:
    """Step: late writes, expired tombstones."""
    page.print(
        f"After the cleaning, {human_count(later.late_writes)} old versions were written to {TOPIC}. Then `--now-ms` "
        "sets the time one day later, past delete.retention.ms. A tombstone is removed if the log has no other record "
        "of its key. If it has a late write, the tombstone stays for one more cleaning. So an interrupted cleaning "
        "does not bring the key back."
    )
    page.table(
        ("late writes", "to deleted keys", "tombstones", "removed", "waiting", "keys wrong", ""),
        [
            [
                human_count(later.late_writes),
                human_count(later.late_to_deleted),
                human_count(later.tombstones_before),
                human_count(later.tombstones_gone),
                human_count(later.tombstones_waiting),
                human_count(later.wrong.keys),
                "good" if later.good else "WRONG",
            ]
        ],
    )


def strategies_document(
    delegated: Delegated, entry: dict[str, Any], compared: Compared, later: DayLater
) -> dict[str, Any]:
    """The same for ``--json``."""
    return {
        "topic": TOPIC,
        "settings": dict(STRATEGY),
        "delegated": dict(delegated.changes),
        "race": dataclasses.asdict(delegated.facts),
        "cleaned": entry,
        "views": [{**dataclasses.asdict(view), "wrong_keys": view.wrong.keys} for view in compared.views],
        "as_latest_state_said": compared.as_promised,
        "kafka_by_its_rules": compared.kafka_by_its_rules,
        "a_day_later": {**dataclasses.asdict(later), "wrong_keys": later.wrong.keys},
        "good": compared.good and later.good,
    }
