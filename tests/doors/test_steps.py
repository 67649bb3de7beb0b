"""tasks steps: the steps of a task, also of finished turns."""

from __future__ import annotations

from functools import partial

import pytest

from holdfast.api.steps import StepsAsked, read_steps
from holdfast.core.errors import BadInput
from holdfast.core.program_records import TurnSummary
from holdfast.core.run import RunRecord
from holdfast.store import Store
from holdfast.store.journal import saving_step
from tests.builders import a_step, running_run
from tests.doors.calls import HOSTILE, Opens, Run
from tests.store.program_records import a_summary, a_turn


def _turn(store: Store, run: RunRecord, seq: int, *steps: TurnSummary) -> None:
    turn = a_turn(run, seq=seq, turn=str(seq), steps=tuple(steps))
    store.write_now(lambda tx: tx.turns.commit(turn, f"main:{seq}", is_over=False))


def test_the_steps_of_finished_turns_come_before_the_steps_in_the_journal(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        live, claim = running_run(store)
        _turn(store, live, 1, a_summary("fetch", preview='"tide"', size_bytes=6))
        step = a_step(live, name="think", result=b'{"sum":3}')
        store.write_now(saving_step(step, claim.fence, store.sealing))

    called = run("tasks", "steps", live.task_id, "--json")

    first, second = called.json["steps"]
    assert (first["name"], first["scope"], first["result"], first["isFinished"]) == (
        "fetch",
        "main:1",
        "tide",
        True,
    )
    assert (second["name"], second["result"], second["isFinished"]) == ("think", {"sum": 3}, False)


def test_a_result_that_is_no_longer_whole_is_marked(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        live, _ = running_run(store)
        _turn(store, live, 1, a_summary("fetch", preview='["tide"', size_bytes=90_000))

    short, full = run("tasks", "steps", live.task_id), run("tasks", "steps", live.task_id, "--full")

    assert "not kept whole" in short.out
    assert "1 result not kept whole" in short.err
    assert "87.9 KiB; the rest is no longer kept" in full.out


def test_every_page_of_steps_begins_where_the_last_one_ended(ledger: Opens) -> None:
    with ledger() as store:
        live, _ = running_run(store)
        for seq in range(1, 6):
            _turn(store, live, seq, a_summary(f"in-{seq}"))
        names: list[str] = []
        token = None
        while True:
            asked = StepsAsked(task_id=live.task_id, limit=2, page_token=token)
            page = store.read_now(partial(read_steps, asked=asked))
            names += [step.name for step in page.steps]
            token = page.next_page_token
            if token is None:
                break

    assert names == [f"in-{seq}" for seq in range(1, 6)]


def test_a_wrong_page_token_is_refused(ledger: Opens) -> None:
    with ledger() as store:
        live, _ = running_run(store)
        asked = StepsAsked(task_id=live.task_id, page_token="main:x")

        with pytest.raises(BadInput, match="page token"):
            store.read_now(lambda tx: read_steps(tx, asked))


@pytest.mark.parametrize("option", ["", "--full"])
def test_hostile_text_in_a_step_is_harmless(run: Run, ledger: Opens, option: str) -> None:
    with ledger() as store:
        live, _ = running_run(store)
        _turn(store, live, 1, a_summary("fetch", preview=HOSTILE, size_bytes=90_000))

    called = run("tasks", "steps", live.task_id, *([option] if option else []))

    assert "\x1b" not in called.out
    assert "\u202e" not in called.out


def test_an_unknown_task_has_no_steps(run: Run, ledger: Opens) -> None:
    with ledger():
        pass

    called = run("tasks", "steps", "task_nothing")

    assert called.status == 4
