"""events: the end of the feed, from a position on, of one task, and followed."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from holdfast.core.events import EventKind
from holdfast.store import Store, Tx
from tests.builders import START, stored_run
from tests.doors.calls import PROGRAM, Opens, Run, environment


def emit(store: Store, number: int, *, task_id: str | None = None, days: int = 0) -> None:
    at = START + timedelta(days=days)
    for place in range(number):

        def emit_one(tx: Tx, place: int = place) -> None:
            tx.emit(EventKind.RUN_WOKEN, f"run_{place}", at=at, task_id=task_id, place=place)

        store.write_now(emit_one)


def places(called: object) -> list[int]:
    return [event["facts"]["place"] for event in getattr(called, "json", {})["events"]]


def test_without_a_position_the_newest_are_shown_in_order(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        emit(store, 5)

    assert places(run("events", "--json", "--limit", "2")) == [3, 4]


def test_after_a_position_the_oldest_come_first(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        emit(store, 5)

    first = run("events", "--json", "--after", "0.0", "--limit", "2")
    second = run("events", "--json", "--after", first.json["nextPosition"], "--limit", "9")

    assert places(first) == [0, 1]
    assert places(second) == [2, 3, 4]


def test_the_end_of_the_feed_is_an_empty_page_at_the_same_position(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        emit(store, 2)
    end = run("events", "--json").json["nextPosition"]

    page = run("events", "--json", "--after", end).json

    assert page == {"events": [], "nextPosition": end}


def test_events_of_one_task_are_picked_out(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = stored_run(store).task_id
        emit(store, 2)
        emit(store, 3, task_id=task_id)

    assert places(run("events", "--json", "--task", task_id)) == [0, 1, 2]
    assert places(run("events", "--json", "--task", task_id, "--limit", "1")) == [2]
    assert places(run("events", "--json", "--task", task_id, "--after", "0.0", "--limit", "1")) == [0]


def test_events_are_shown_in_words_with_the_way_on(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        emit(store, 1)

    called = run("events")

    assert called.out == "2026-01-01 00:00:00Z  run_woken              run_0  place=0\n"
    assert "--after 0.1" in called.err


def test_a_position_whose_followers_were_pruned_ends_with_status_4(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        emit(store, 3)
        emit(store, 1, days=9)
        store.write_now(lambda tx: tx.events.prune(older_than=START + timedelta(days=1)))

    called = run("events", "--after", "0.1", "--json")

    assert called.status == 4
    assert called.error["code"] == "feed_gap"
    assert run("events", "--after", "0.0").status == 0
    assert run("events", "--after", "0.3").status == 0


@pytest.mark.parametrize("arguments", [("--json",), ()], ids=["json", "words"])
def test_following_shows_what_happens_as_it_happens(
    ledger: Opens, home: Path, arguments: tuple[str, ...]
) -> None:
    with ledger() as store:
        emit(store, 1)
    process = subprocess.Popen(
        [*PROGRAM, "events", "--follow", *arguments], env=environment(home), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        with ledger() as store:
            emit(store, 2)
        then = [process.stdout.readline(), process.stdout.readline()]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()

    if arguments:
        shown = [msgspec.json.decode(line)["subjectId"] for line in (first, *then)]
    else:
        shown = [line.split()[3] for line in (first, *then)]
    assert shown == ["run_0", "run_0", "run_1"]
