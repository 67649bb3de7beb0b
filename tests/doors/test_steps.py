"""tasks steps: the steps of a task, also of finished turns."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.api.steps import StepsAsked, read_steps
from holdfast.core.errors import BadInput
from holdfast.core.program_records import KeptSteps, TurnSummary
from holdfast.core.run import RunRecord
from holdfast.store import Store, Tx
from holdfast.store.journal import saving_step
from holdfast.store.rows.journal import row_from_turn
from holdfast.views.steps import StepPageView
from tests.builders import a_step, running_run
from tests.doors.calls import HOSTILE, Opens, Run
from tests.engine.tables import execute
from tests.store.program_records import a_summary, a_turn, kept_of


def _turn(store: Store, run: RunRecord, seq: int, *steps: TurnSummary, kept: KeptSteps | None = None) -> None:
    turn = a_turn(run, seq=seq, turn=str(seq), steps=tuple(steps))
    store.write_now(lambda tx: tx.turns.commit(turn, f"main:{seq}", is_over=False, kept=kept))


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


def test_the_newest_steps_are_those_of_the_last_turns_and_of_the_journal(ledger: Opens) -> None:
    with ledger() as store:
        live, claim = running_run(store)
        for seq in range(1, 9):
            _turn(store, live, seq, a_summary(f"in-{seq}"))
        store.write_now(saving_step(a_step(live, name="think"), claim.fence, store.sealing))
        asked = StepsAsked(task_id=live.task_id, limit=6, newest=True)
        page = store.read_now(partial(read_steps, asked=asked))

        few = StepsAsked(task_id=live.task_id, limit=100, newest=True)
        whole = store.read_now(partial(read_steps, asked=few))

    assert [step.name for step in page.steps] == ["in-6", "in-7", "in-8", "think"]
    assert page.next_page_token is None
    assert len(whole.steps) == 9


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
        hostile = a_summary("fetch", preview=HOSTILE, arguments=HOSTILE, size_bytes=90_000)
        kept = a_summary("look", preview="{", arguments=HOSTILE, size_bytes=500, is_kept=True)
        _turn(store, live, 1, hostile, kept, kept=kept_of(None, msgspec.json.encode({"text": HOSTILE})))

    called = run("tasks", "steps", live.task_id, *([option] if option else []))

    assert "\x1b" not in called.out
    assert "\u202e" not in called.out


def test_the_arguments_and_the_kept_results_of_a_finished_turn_are_shown(run: Run, ledger: Opens) -> None:
    text = b'"high and low tide"'
    with ledger() as store:
        live, _ = running_run(store)
        step = a_summary("fetch", preview='"high', arguments='"tides", 3', size_bytes=19, is_kept=True)
        _turn(store, live, 1, step, kept=kept_of(text))

    short, full = run("tasks", "steps", live.task_id), run("tasks", "steps", live.task_id, "--full")

    assert '"tides", 3 -> "high' in short.out
    assert "not kept" not in short.out + short.err
    assert '"high and low tide"' in full.out
    assert 'arguments  "tides", 3' in full.out


def test_without_the_key_names_sizes_and_durations_are_shown_and_how_to_give_the_key(
    run: Run, ledger: Opens, home: Path
) -> None:
    with ledger() as store:
        live, _ = running_run(store)
        hidden = a_summary("login", preview="", size_bytes=2048, duration_us=7_000, is_kept=True)
        _turn(store, live, 1, hidden, kept=kept_of(b'"welcome"', is_secret=True))
    (home / "key").unlink()

    called = run("tasks", "steps", live.task_id)
    full = run("tasks", "steps", live.task_id, "--full", "--json").json["steps"]

    assert called.status == 0
    assert "main:1/login  7.0 ms  2.0 KiB  [sealed] -> [sealed]" in called.out
    assert "holdfast store key import" in called.err
    assert (full[0]["isSealed"], full[0]["result"], full[0]["name"]) == (True, None, "login")


def test_a_turn_that_an_older_release_sealed_whole_is_counted_without_the_key(
    run: Run, ledger: Opens, home: Path
) -> None:
    with ledger() as store:
        live, _ = running_run(store)
        _turn(store, live, 1, a_summary("login", preview='"welcome"', digest="01" * 13), a_summary("think"))
    (home / "key").unlink()

    called = run("tasks", "steps", live.task_id)

    assert "main:1/[2 sealed]" in called.out
    assert "holdfast store key import" in called.err


@pytest.mark.parametrize(("turn", "shown"), [("2", ["in-2"]), ("main:3", ["in-3"]), ("4", ["open"])])
def test_one_turn_is_shown_whether_it_is_finished_or_open(
    run: Run, ledger: Opens, turn: str, shown: list[str]
) -> None:
    with ledger() as store:
        live, claim = running_run(store)
        for seq in range(1, 4):
            _turn(store, live, seq, a_summary(f"in-{seq}"))
        for scope in ("main:4", "main:40", ""):
            step = a_step(live, name="open" if scope == "main:4" else "other", scope=scope)
            store.write_now(saving_step(step, claim.fence, store.sealing))

    called = run("tasks", "steps", live.task_id, "--turn", turn, "--json")

    assert [step["name"] for step in called.json["steps"]] == shown


def test_a_turn_that_is_not_there_is_refused_and_names_the_loops(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        live, _ = running_run(store)
        _turn(store, live, 1, a_summary())

    called = run("tasks", "steps", live.task_id, "--turn", "9")

    assert called.status == 2
    assert "main (1 done)" in called.err


def test_a_page_of_many_turns_reads_only_its_own(ledger: Opens) -> None:
    with ledger() as store:
        live, _ = running_run(store)
        turns = [a_turn(live, seq, steps=(a_summary(f"in-{seq}"),)) for seq in range(1, 10_001)]

        def fill(tx: Tx) -> None:
            rows = (row_from_turn(turn, store.sealing) for turn in turns)
            for row in rows:
                tx.statements.run("insert_turn", row)

        store.write_now(fill)
        rows = _rows_read(store, StepsAsked(task_id=live.task_id, limit=5, page_token="main:9000"))

    assert rows <= 6


def _rows_read(store: Store, asked: StepsAsked) -> int:
    """How many turns a page decodes."""
    seen: list[object] = []

    def read(tx: Tx) -> StepPageView:
        page = tx.turns.page

        def counting(*args: Any, **kwargs: Any) -> Any:
            seen.extend(found := page(*args, **kwargs))
            return found

        tx.turns.page = counting  # type: ignore[method-assign]
        return read_steps(tx, asked)

    page = store.read_now(read)
    assert [step.name for step in page.steps] == [f"in-{seq}" for seq in range(9001, 9006)]
    return len(seen)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_steps_in_the_journal_with_the_same_time_come_once_on_the_pages(ledger: Opens, limit: int) -> None:
    with ledger() as store:
        live, claim = running_run(store)
        for number in range(7):
            step = a_step(live, name=f"step-{number}", seq=5 + number // 5)
            store.write_now(saving_step(step, claim.fence, store.sealing))
        names: list[str] = []
        token: str | None = None
        while True:
            asked = StepsAsked(task_id=live.task_id, limit=limit, page_token=token)
            page = store.read_now(partial(read_steps, asked=asked))
            names += [step.name for step in page.steps]
            token = page.next_page_token
            if token is None:
                break

    assert names == [f"step-{number}" for number in range(7)]


def test_a_full_page_ends_early_when_its_results_are_large(
    ledger: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.api.steps.MAX_PAGE_BYTES", 150)
    with ledger() as store:
        live, _ = running_run(store)
        for seq in range(1, 5):
            step = a_summary(f"in-{seq}", size_bytes=102, is_kept=True)
            _turn(store, live, seq, step, kept=kept_of(b'"' + b"x" * 100 + b'"'))

        page = store.read_now(lambda tx: read_steps(tx, StepsAsked(task_id=live.task_id, full=True)))

    assert [step.name for step in page.steps] == ["in-1", "in-2"]
    assert page.next_page_token == "main:2"


def test_a_damaged_turn_hides_no_other(ledger: Opens) -> None:
    with ledger() as store:
        live, _ = running_run(store)
        for seq in (1, 2, 3):
            _turn(store, live, seq, a_summary(f"in-{seq}"))
        execute(store, "UPDATE turns SET steps = digest WHERE seq = 2")

        page = store.read_now(lambda tx: read_steps(tx, StepsAsked(task_id=live.task_id)))

    assert [step.name for step in page.steps] == ["in-1", "in-3"]
    assert ["turn 2 of loop main" in problem for problem in page.problems] == [True]


@pytest.mark.parametrize("width", [80, 120])
def test_the_list_of_steps_fits_the_terminal(
    run: Run, ledger: Opens, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ledger() as store:
        live, _ = running_run(store)
        long = {"preview": '"' + "tide " * 24, "arguments": '"' + "wave " * 20, "size_bytes": 16_000}
        step = a_summary("fetch_the_tides_of_every_harbour_on_the_coast", is_kept=True, **long)
        _turn(store, live, 1, step)
    monkeypatch.setattr("holdfast.cli.output.is_terminal", lambda _stream: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")

    lines = run("tasks", "steps", live.task_id).out.splitlines()

    assert max(map(len, lines)) <= width
    assert "wave" in lines[1]


def test_an_unknown_task_has_no_steps(run: Run, ledger: Opens) -> None:
    with ledger():
        pass

    called = run("tasks", "steps", "task_nothing")

    assert called.status == 4
