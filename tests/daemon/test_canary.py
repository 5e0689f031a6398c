"""``cleanerd.canary``: a budget of cleanings, each verified before the daemon continues (D-18, D-19, D-20)."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.config.load import load_settings
from cleanerd.daemon.registry.canary import (
    DAY_MS,
    DOCUMENT,
    NOTHING_CLEANED,
    CanaryHold,
    CanaryState,
    CleanedLog,
    load_canary,
)
from cleanerd.daemon.work.job import JobDone
from cleanerd.daemon.work.run_job import run
from cleanerd.errors import ConfigError
from cleanerd.format.names import TopicPartition
from cleanerd.policy.canary import CanaryBudget, parse_canary
from tests.daemon.service import assignments, broker, control_requests, is_clean, partition, rounds, serve, until
from tests.support.logs import seal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cleanerd.daemon.partition_scan import Key
    from cleanerd.daemon.service import Service
    from cleanerd.daemon.view import CanaryView
    from cleanerd.daemon.work.job import CleaningJob

NOW = 1_700_000_000_000


# -- the budget -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "partitions", "day_bytes"),
    [
        ("1 partition", 1, None),
        ("5 partitions", 5, None),
        (" 5  partitions ", 5, None),
        ("200 MiB per day", None, 200 << 20),
        ("1GiB per day", None, 1 << 30),
    ],
)
def test_budgets(text: str, partitions: int | None, day_bytes: int | None) -> None:
    found = parse_canary(text)
    assert found is not None
    assert (found.partitions, found.day_bytes) == (partitions, day_bytes)
    assert parse_canary(str(found)) == found


@pytest.mark.parametrize("number", [0, 1])
def test_a_finding_holds_every_partition(number: int) -> None:
    """D-20: also where the budget has room for more cleanings."""
    hold = CanaryHold("/data", "orders-0", "a key twice", NOW)
    state = replace(NOTHING_CLEANED, hold=hold)
    key = ("/data", TopicPartition("orders", number))
    assert state.refusal(CanaryBudget("5 partitions", 5), key, 100) == str(hold)


def test_without_a_budget() -> None:
    assert parse_canary("off") is None
    assert load_settings([], [], {}).daemon.cleanerd_canary is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0 partitions",
        "-1 partitions",
        "5",
        "5 topics",
        "200 MiB",
        "200 MB per day",
        "1.5 GiB per day",
        "0 MiB per day",
    ],
)
def test_invalid_budgets(text: str) -> None:
    with pytest.raises(ConfigError, match="5 partitions"):
        load_settings([], [f"cleanerd.canary={text}"], {})


def log_of(number: int, size_bytes: int, began_ms: int = NOW) -> CleanedLog:
    return CleanedLog("/logs", "orders", number, "", size_bytes, began_ms)


def key_of(number: int) -> Key:
    return "/logs", TopicPartition("orders", number)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("budget", [CanaryBudget("", partitions=3), CanaryBudget("", day_bytes=1000)])
def test_never_more_than_the_budget_between_two_verifications(budget: CanaryBudget, seed: int) -> None:
    """D-18: whatever the order of cleanings, verifications, restarts and jumps of the clock."""
    draw = random.Random(seed)
    state, now_ms, since_verified, day_bytes = NOTHING_CLEANED, NOW, [], 0
    for _ in range(500):
        state = state.at(now_ms)
        number, size = draw.randrange(50), draw.choice([1, 100, 400, 999, 1000, 1001, 5000])
        match draw.randrange(6):
            case 0 | 1 | 2:
                if not state.refusal(budget, key_of(number), size):
                    state = state.charged(log_of(number, size, now_ms))
                    since_verified.append(size)
                    day_bytes += size
            case 3 if state.unverified:
                for log in state.unverified:
                    state = state.verified_log(log)
                since_verified = []
            case 4:
                now_ms += draw.choice([1, DAY_MS // 2, DAY_MS, 30 * DAY_MS, -1, -DAY_MS, -400 * DAY_MS])
                if now_ms >= state.day_ms + DAY_MS:
                    day_bytes = sum(since_verified)
            case _:
                state = DOCUMENT.parse(DOCUMENT.to_bytes(state))
        assert len(since_verified) <= (budget.partitions or 500)
        assert sum(since_verified) <= (budget.day_bytes or 10**9)
        assert day_bytes <= (budget.day_bytes or 10**9)


def test_a_clock_that_was_set_back_delays_one_day() -> None:
    """D-18: the budget returns after a day of the new time, not when the old time is reached again."""
    budget = CanaryBudget("", day_bytes=1000)
    state = NOTHING_CLEANED.at(NOW).charged(log_of(0, 1000))
    state = state.verified_log(state.unverified[0]).at(NOW - 300 * DAY_MS)
    assert "today's budget" in state.refusal(budget, key_of(1), 10)
    assert "today's budget" in state.at(NOW - 299 * DAY_MS - 1).refusal(budget, key_of(1), 10)
    assert not state.at(NOW - 299 * DAY_MS).refusal(budget, key_of(1), 10)


def test_a_new_day_keeps_unverified_cleanings() -> None:
    """D-18: otherwise a clock that jumps ahead would double the budget."""
    budget = CanaryBudget("", day_bytes=1000)
    state = NOTHING_CLEANED.at(NOW).charged(log_of(0, 600)).at(NOW + 10 * DAY_MS)
    assert "used up" in state.refusal(budget, key_of(1), 600)
    assert not state.refusal(budget, key_of(1), 400)


def test_a_log_larger_than_the_budget_is_never_cleaned() -> None:
    """D-18: and it is named as the reason, because it never fits."""
    budget = CanaryBudget("1 KiB per day", day_bytes=1024)
    assert (
        NOTHING_CLEANED.refusal(budget, key_of(0), 1025)
        == "its log of 1.0 KiB is larger than cleanerd.canary (1 KiB per day)"
    )
    assert not NOTHING_CLEANED.refusal(budget, key_of(0), 1024)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"format": 1}',
        b'{"format": 2}',
        b'{"format": 1, "unverified": [], "spent_bytes": -1, "day_ms": 0, "verified": 0, "hold": null}',
    ],
)
def test_a_state_that_cannot_be_read_holds(root: Path, data: bytes) -> None:
    """D-20: the number of unverified cleanings is unknown then."""
    root.mkdir(exist_ok=True)
    (root / DOCUMENT.name).write_bytes(data)
    hold = load_canary(root, NOW).hold
    assert hold is not None
    assert DOCUMENT.name in hold.finding
    assert "it is unknown which cleanings were" in replace(NOTHING_CLEANED, hold=hold).refusal(
        CanaryBudget("", 5), key_of(0), 1
    )


def test_the_state_is_read_as_it_was_written(root: Path) -> None:
    state = CanaryState((log_of(1, 5), log_of(2, 7)), 11, NOW, 3, CanaryHold("/logs", "orders-1", "a key twice", NOW))
    assert not DOCUMENT.try_write(root, state)
    assert load_canary(root, NOW) == state
    assert load_canary(root / "elsewhere", NOW) == NOTHING_CLEANED


# -- the daemon -------------------------------------------------------------------------------------------------------


def canary(service: Service) -> CanaryView:
    found = service.view().canary
    assert found is not None
    return found


def cleaned(service: Service) -> list[str]:
    return [f"{each.topic}-{each.partition}" for each in service.view().history if each.result["outcome"] == "cleaned"]


def wrong_on(name: str, where: Callable[[Path], None]) -> Callable[..., JobDone]:
    """A faulty cleaner: in partition ``name`` it leaves a record of another key."""

    def work(job: CleaningJob, *more: Any) -> JobDone:
        done = run(job, *more)
        if job.kind == "live" and str(job.name) == name and done.result is not None and done.result.groups:
            where(job.path / name / f"{5:020d}.log")
        return done

    return work


def another_key(path: Path) -> None:
    """The key b becomes c, which the segment before it also has: a clean log may have a key only once."""
    data = bytearray(path.read_bytes())
    assert data.count(b"\x02b\x02") == 1
    path.write_bytes(seal(bytes(data.replace(b"\x02b\x02", b"\x02c\x02"))))


def another_value(path: Path) -> None:
    """Only a comparison with the replaced segments shows the change."""
    data = bytearray(path.read_bytes())
    assert data.count(b"\x02b\x022") == 1
    path.write_bytes(seal(bytes(data.replace(b"\x02b\x022", b"\x02b\x027"))))


def test_it_cleans_verifies_and_continues(root: Path) -> None:
    """D-19: five partitions, a budget of two, no fault."""
    most = [0]

    def counted(job: CleaningJob, *more: Any) -> JobDone:
        found = services[0].canary.view()
        most.append(0 if found is None else found.unverified)
        return run(job, *more)

    services: list[Service] = []
    with broker(root, 5):

        async def story(service: Service) -> None:
            services.append(service)
            await until("all verified", lambda: canary(service).verified == 5)
            assert all(is_clean(service.view(), 8, f"orders-{n}") for n in range(5))
            assert canary(service).unverified == 0

        serve(assignments(root, cleanerd_canary="2 partitions"), story, run_job=counted)
    assert max(most) == 2


@pytest.mark.slow
@pytest.mark.parametrize("compared", [False, True])
def test_a_wrong_cleaning_holds_everything(root: Path, compared: bool) -> None:
    """D-19, D-20: the partition and the finding are named, no other partition is cleaned, also after a restart."""
    more = {"cleanerd_canary": "1 partition", "log_cleaner_threads": "2"}
    if compared:
        (root.parent / "kept").mkdir()
        more["cleanerd_keep_replaced_dir"] = str(root.parent / "kept")
    wrong = wrong_on("orders-0", another_value if compared else another_key)
    settings = assignments(root, **more)
    with broker(root, 3):

        async def story(service: Service) -> None:
            await until("it holds", lambda: canary(service).held_partition is not None)
            assert canary(service).held_partition == "orders-0"
            assert canary(service).held_log_dir == str(root)
            assert ("offset 6" if compared else "key-twice") in canary(service).finding
            await rounds(service)
            assert cleaned(service) == ["orders-0"]
            waits = partition(service.view(), "orders-1")
            assert (waits.phase, waits.outlook) == ("paused", "no")
            assert "orders-0" in waits.reason
            assert "the canary stopped cleaning" in service.publisher.status_line()

        serve(settings, story, run_job=wrong)

        async def later(service: Service) -> None:
            await until("scanned", lambda: service.view().ready)
            await rounds(service)
            assert canary(service).held_partition == "orders-0"
            assert not cleaned(service)
            ask = control_requests(root)
            verified_again = await ask("retry")
            assert verified_again["verified_again"] == "orders-0"
            await until("it holds again", lambda: canary(service).held_partition == "orders-0")
            released = (await ask("release-canary"))["released"]
            assert released["partition"] == "orders-0"
            await until("the others", lambda: {"orders-1", "orders-2"} <= set(cleaned(service)))

        serve(settings, later)


def test_an_operators_request_does_not_override_a_hold(root: Path) -> None:
    """D-20: ``cleanerd trigger`` is refused, and the message shows how to release the hold."""
    hold = CanaryHold(str(root), "orders-1", "a key twice", NOW)
    assert not DOCUMENT.try_write(root.parent / "state", replace(NOTHING_CLEANED, hold=hold))
    with broker(root, 1):

        async def story(service: Service) -> None:
            await until("scanned", lambda: service.view().ready)
            with pytest.raises(Exception, match=r"a key twice .*cleanerd resume --canary"):
                await control_requests(root)("trigger", partition="orders-0")
            assert not cleaned(service)

        serve(assignments(root, cleanerd_canary="1 partition"), story)


def test_the_budget_counts_across_a_restart(root: Path) -> None:
    """D-18: cleanings that an earlier daemon did not verify are verified before anything else is cleaned."""
    begun: list[tuple[str, str]] = []
    settings = assignments(root, cleanerd_canary="1 partition")

    def interrupted(job: CleaningJob, *more: Any) -> JobDone:
        return JobDone(job, NOW, stopped=True) if job.kind == "verify" else run(job, *more)

    def noted(job: CleaningJob, *more: Any) -> JobDone:
        if job.kind in {"live", "verify"}:
            begun.append((job.kind, str(job.name)))
        return run(job, *more)

    with broker(root, 2):

        async def first(service: Service) -> None:
            await until("cleaned", lambda: cleaned(service) == ["orders-0"])
            await rounds(service)
            assert cleaned(service) == ["orders-0"]

        serve(settings, first, run_job=interrupted)
        (log,) = load_canary(root.parent / "state", NOW).unverified
        assert (log.key, log.size_bytes) == ((str(root), TopicPartition("orders", 0)), 3249)

        async def second(service: Service) -> None:
            await until("verified", lambda: canary(service).verified == 2)

        serve(settings, second, run_job=noted)
    assert begun == [("verify", "orders-0"), ("live", "orders-1"), ("verify", "orders-1")]


def test_nothing_is_cleaned_if_the_count_cannot_be_stored(root: Path) -> None:
    """D-18: otherwise, with a full state directory, the next start would not know the budget."""
    with broker(root, 1) as agent:
        (root.parent / "state").mkdir()
        (root.parent / "state" / "canary.tmp").mkdir()

        async def story(service: Service) -> None:
            await until("refused", lambda: "canary.json: cannot be written" in partition(service.view()).reason)
            assert not agent.requested("swap")
            (root.parent / "state" / "canary.tmp").rmdir()
            await control_requests(root)("trigger", partition="orders-0")
            await until("clean", lambda: is_clean(service.view(), 8))

        serve(assignments(root, cleanerd_canary="1 partition"), story)


@pytest.mark.parametrize("number", [0, 7])
def test_a_deleted_topic_does_not_hold(root: Path, number: int) -> None:
    """D-19: there is nothing left to verify, also if another topic has that name."""
    log = replace(log_of(number, 1), log_dir=str(root), topic_id="another")
    assert not DOCUMENT.try_write(root.parent / "state", replace(NOTHING_CLEANED, unverified=(log,)))
    with broker(root, 1):

        async def story(service: Service) -> None:
            await until("the other one", lambda: canary(service).verified == 1)
            assert cleaned(service) == ["orders-0"]

        serve(assignments(root, cleanerd_canary="1 partition"), story)


def test_a_partition_that_is_not_managed_any_more_holds(root: Path) -> None:
    """D-20: it was cleaned and still exists, and the daemon cannot verify it any more."""
    log = replace(log_of(0, 1), log_dir=str(root.parent / "other"))
    assert not DOCUMENT.try_write(root.parent / "state", replace(NOTHING_CLEANED, unverified=(log,)))
    with broker(root, 1):

        async def story(service: Service) -> None:
            await until("it holds", lambda: canary(service).held_partition == "orders-0")
            assert canary(service).finding == "cannot be verified: the daemon no longer manages it"
            assert not cleaned(service)

        serve(assignments(root, cleanerd_canary="1 partition"), story)


def test_a_staged_cleaning_is_verified_when_it_was_applied(root: Path) -> None:
    """D-19: until then the log is as it was, and no other one is staged."""
    begun: list[tuple[str, str]] = []

    def noted(job: CleaningJob, *more: Any) -> JobDone:
        if job.kind in {"stage", "verify"}:
            begun.append((job.kind, str(job.name)))
        return run(job, *more)

    with broker(root, 2):

        async def story(service: Service) -> None:
            await until("staged", lambda: partition(service.view()).phase == "staged")
            await rounds(service, 3)
            assert canary(service).unverified == 1

        serve(assignments(root, cleanerd_canary="1 partition", cleanerd_mode="on-start"), story, run_job=noted)
    assert begun == [("stage", "orders-0")]
