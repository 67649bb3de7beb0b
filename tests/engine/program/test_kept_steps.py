"""What stays of the steps of finished turns: arguments, and results up to a limit; no replay reads them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import holdfast as hf
from holdfast.api.steps import StepsAsked, read_steps
from holdfast.config import read_settings
from holdfast.core.errors import SettingsError
from holdfast.core.seal_mode import SealMode
from holdfast.core.transitions import TaskStatus
from holdfast.engine.program.secrets import Secrets
from holdfast.store import Store
from holdfast.store.sealing import MemoryKey, Vault
from holdfast.testing import Crashed, FailingStore, crash_everywhere
from holdfast.views.steps import StepLineView
from tests.engine.stage import Stage
from tests.engine.tables import dump, execute, query
from tests.shared_ledgers import SharedLedger
from tests.store.program_records import flip

LONG = "high and low tide " * 40
SECRET = "hunter2Xy9Zq7"


async def fetch(topic: str, limit: int = 3) -> dict[str, Any]:
    return {"topic": topic, "limit": limit, "text": LONG}


async def pour(size: int) -> str:
    return "x" * size


async def login(password: str, user: str) -> str:
    return f"welcome {user}"


async def look_up(user: str) -> dict[str, str]:
    return {"user": user, "password": SECRET}


@hf.opaque
async def send(to: str) -> dict[str, str]:
    return {"to": to, "receipt": LONG}


@hf.task
async def research(run: hf.Run, topic: str) -> str:
    async for turn in run.turns("main", max=2):
        await turn.step(fetch, topic, limit=turn.number)
        await turn.step(send, "ada")
    return "done"


def steps_of(store: Store, task_id: str, **asked: Any) -> list[StepLineView]:
    page = store.read_now(lambda tx: read_steps(tx, StepsAsked(task_id=task_id, **asked)))
    assert page.next_page_token is None
    return page.steps


def kept_rows(store: Store) -> list[tuple[Any, ...]]:
    return query(store, "SELECT loop, seq, body FROM kept_steps ORDER BY loop, seq")


async def run_once(stage: Stage, task: Any, *args: Any) -> str:
    await stage.open(task)
    handle = await stage.start(task(*args))
    await stage.settle()
    assert await handle.status() is TaskStatus.SUCCEEDED
    return str(handle.id)


async def test_the_results_and_the_arguments_of_finished_turns_stay(stage: Stage) -> None:
    task_id = await run_once(stage, research, "tides")

    first, effect, second, _ = steps_of(stage.store, task_id, full=True)
    assert (first.scope, first.arguments, first.is_kept) == ("main:1", '"tides", limit=1', True)
    assert first.result == {"topic": "tides", "limit": 1, "text": LONG}
    assert second.result["limit"] == 2
    assert (effect.name, effect.arguments, effect.result) == (
        "send",
        '"ada"',
        {"to": "ada", "receipt": LONG},
    )


async def test_a_list_shows_how_results_begin_and_reads_nothing_that_is_kept(stage: Stage) -> None:
    task_id = await run_once(stage, research, "tides")
    execute(stage.store, "UPDATE kept_steps SET body = digest")

    page = stage.store.read_now(lambda tx: read_steps(tx, StepsAsked(task_id=task_id)))

    assert page.problems == []
    assert [(step.name, step.result, step.is_kept) for step in page.steps][:2] == [
        ("fetch", None, True),
        ("send", None, True),
    ]
    assert page.steps[0].preview.startswith('{"topic":"tides","limit":1,"text":"high and low')


async def test_an_effect_is_kept_once_in_its_own_record(stage: Stage) -> None:
    @hf.task
    async def sending(run: hf.Run) -> None:
        async for turn in run.turns("main", max=1):
            await turn.step(send, "ada")

    task_id = await run_once(stage, sending)

    assert kept_rows(stage.store) == []
    assert steps_of(stage.store, task_id, full=True)[0].result == {"to": "ada", "receipt": LONG}


@pytest.mark.parametrize(("keep_bytes", "is_kept"), [(0, False), (499, False), (502, True)])
async def test_a_result_above_the_limit_keeps_only_how_it_begins(
    stage: Stage, keep_bytes: int, is_kept: bool
) -> None:
    @hf.task
    async def dumping(run: hf.Run) -> None:
        async for turn in run.turns("main", max=1):
            await turn.step(pour, 500)
            await turn.step(pour, 20)

    stage.keep_bytes = keep_bytes
    task_id = await run_once(stage, dumping)

    long, short = steps_of(stage.store, task_id, full=True)
    assert (long.is_kept, long.result) == ((True, "x" * 500) if is_kept else (False, None))
    assert (long.size_bytes, long.arguments) == (502, "500")
    assert long.preview.startswith('"xxxx')
    assert (short.is_kept, short.result) == (True, "x" * 20)


async def test_a_turn_of_many_steps_keeps_a_bounded_amount(stage: Stage) -> None:
    @hf.task
    async def dumping(run: hf.Run) -> None:
        async for turn in run.turns("main", max=1):
            for _ in range(70):
                await turn.step(hf.step(pour, pure=True), 16_000)

    task_id = await run_once(stage, dumping)

    kept = [step.is_kept for step in steps_of(stage.store, task_id, full=True)]
    assert kept == [True] * 65 + [False] * 5


async def test_a_failure_of_a_step_is_kept(stage: Stage) -> None:
    async def fail(what: str) -> None:
        raise ValueError(f"{what} {LONG}")

    @hf.task
    async def failing(run: hf.Run) -> None:
        async for turn in run.turns("main", max=1):
            try:
                await turn.step(fail, "ebb")
            except hf.StepFailed:
                continue

    task_id = await run_once(stage, failing)

    (step,) = steps_of(stage.store, task_id, full=True)
    assert step.failure is not None
    assert step.failure.message.startswith("ebb high and low")


async def test_the_turns_of_loops_inside_a_turn_stay(stage: Stage) -> None:
    @hf.task
    async def nested(run: hf.Run) -> None:
        async for turn in run.turns("main", max=2):
            await turn.step(fetch, "outer")
            async for inner in run.turns("inner", max=2):
                await inner.step(fetch, f"{turn.number}.{inner.number}")

    task_id = await run_once(stage, nested)

    assert [(step.scope, step.arguments) for step in steps_of(stage.store, task_id, full=True)] == [
        ("main:1", '"outer"'),
        ("main:2", '"outer"'),
        ("main:1/inner:1", '"1.1"'),
        ("main:1/inner:2", '"1.2"'),
        ("main:2/inner:1", '"2.1"'),
        ("main:2/inner:2", '"2.2"'),
    ]
    assert [step.scope for step in steps_of(stage.store, task_id, turn="2")] == [
        "main:2",
        "main:2/inner:1",
        "main:2/inner:2",
    ]
    head = stage.store.read_now(lambda tx: tx.journal.heads([task_id]))[task_id]
    assert head.steps_saved == 6


# --- secrets


async def test_what_a_step_with_a_secret_keeps_is_sealed_and_shown_redacted(stage: Stage) -> None:
    @hf.task
    async def secretive(run: hf.Run) -> None:
        await run.step(login, SECRET, "bob")
        async for turn in run.turns("main", max=1):
            await turn.step(login, SECRET, "ada")
            await turn.step(look_up, "ada")

    task_id = await run_once(stage, secretive)

    for table in ("steps", "turns", "kept_steps"):
        for row in query(stage.store, f"SELECT * FROM {table}"):
            assert SECRET.encode() not in b"".join(one for one in row if isinstance(one, bytes))
            assert b"welcome" not in b"".join(one for one in row if isinstance(one, bytes))
    entered, looked_up, outside = steps_of(stage.store, task_id, full=True)
    for step in (entered, outside):
        assert "ada" in step.arguments or "bob" in step.arguments
        assert "redacted" in step.arguments
    assert entered.result == "welcome ada"
    assert SECRET not in str(msgspec.to_builtins((entered, looked_up, outside)))


async def test_a_named_secret_shows_its_name(stage: Stage) -> None:
    @hf.task
    async def named(run: hf.Run) -> None:
        async for turn in run.turns("main", max=1):
            await turn.step(login, hf.secret("TIDES_PASSWORD"), "ada")

    stage.secrets = Secrets({"TIDES_PASSWORD": SECRET})
    task_id = await run_once(stage, named)

    (step,) = steps_of(stage.store, task_id)
    assert "TIDES_PASSWORD" in step.arguments
    assert SECRET not in str(msgspec.to_builtins(step))


# --- crashes, freezes and damage


async def test_a_turn_and_what_it_keeps_commit_together_wherever_the_process_dies(stage: Stage) -> None:
    @hf.task
    async def loop(run: hf.Run) -> None:
        async for turn in run.turns("main", max=1):
            await turn.step(fetch, "tides")

    await stage.open(loop)
    handle = await stage.start(loop())
    recorded = FailingStore(stage.store)
    stage._place = msgspec.structs.replace(stage._place, store=recorded)
    await stage.settle()
    points = recorded.failpoints()
    assert await handle.status() is TaskStatus.SUCCEEDED
    assert "RunProgram._commit.<locals>.commit_turn" in [call.name for call in recorded.calls]

    for point in points:
        await stage.open(loop)
        handle = await stage.start(loop())
        stage._place = msgspec.structs.replace(stage._place, store=FailingStore(stage.store, [point]))
        await stage.settle()
        finished, kept = counts(stage.store, str(handle.id))
        assert finished == kept, str(point)

        await stage.open(loop)
        await stage.settle()
        assert await handle.status() is TaskStatus.SUCCEEDED, str(point)
        assert counts(stage.store, str(handle.id)) == (1, 1), str(point)


def counts(store: Store, task_id: str) -> tuple[int, int]:
    """How many finished turns there are, and how many of them kept something."""
    turns = query(store, f"SELECT seq FROM turns WHERE task_id = '{task_id}'")
    kept = query(store, f"SELECT seq FROM kept_steps WHERE task_id = '{task_id}'")
    return len(turns), len(kept)


@pytest.mark.slow
async def test_a_program_that_keeps_results_survives_a_crash_everywhere() -> None:
    report = await crash_everywhere(research, "tides", twice=True)

    assert report.result == "done"


async def test_a_late_turn_of_a_worker_that_lost_its_claim_keeps_nothing(stage: Stage) -> None:
    @hf.task
    async def loop(run: hf.Run) -> None:
        async for turn in run.turns("main", max=1):
            await turn.step(fetch, "tides")
            take_over(stage.store, str(run.id))

    await stage.open(loop)
    handle = await stage.start(loop())
    await stage.settle()

    assert counts(stage.store, str(handle.id)) == (0, 0)


def take_over(store: Store, run_id: str) -> None:
    """What another worker does when the lease has lapsed."""
    execute(store, f"UPDATE runs SET fence = fence + 1 WHERE id = '{run_id}'")


async def test_damage_to_what_is_kept_harms_no_replay_and_is_reported(stage: Stage) -> None:
    has_died: list[bool] = []

    async def die_once() -> None:
        if not has_died:
            has_died.append(True)
            raise Crashed

    @hf.task
    async def loop(run: hf.Run) -> int:
        count = 0
        async for turn in run.turns("main", max=2):
            await turn.step(fetch, f"tides {turn.number}")
            if turn.number == 2:
                await turn.step(die_once)
            count += 1
        return count

    await stage.open(loop)
    handle = await stage.start(loop())
    await stage.settle()
    flip(stage.store, "kept_steps", "body")
    await stage.open(loop)
    await stage.settle()

    assert await handle.status() is TaskStatus.SUCCEEDED
    page = stage.store.read_now(lambda tx: read_steps(tx, StepsAsked(task_id=str(handle.id), full=True)))
    assert ["kept step" in problem for problem in page.problems] == [True]
    assert [step.name for step in page.steps] == ["fetch", "fetch", "die_once"]
    assert any("kept step" in problem for problem in stage.store.verify())


# --- several processes


async def test_what_two_processes_have_kept_is_shown_by_a_third(shared_ledger: SharedLedger) -> None:
    first, second = shared_ledger.stage(), shared_ledger.stage()

    def loops(*, dies: bool) -> Any:
        @hf.task
        async def loop(run: hf.Run) -> None:
            async for turn in run.turns("main", max=3):
                await turn.step(look_up, f"user {turn.number}")
                await turn.step(fetch, f"tides {turn.number}")
                if dies and turn.number == 2:
                    raise Crashed

        return loop

    await first.open(dying := loops(dies=True))
    handle = await first.start(dying())
    await first.settle()
    await second.open(loops(dies=False))
    await second.settle()

    shown = steps_of(shared_ledger.open(), str(handle.id), full=True)
    assert [(step.scope, step.name, step.arguments) for step in shown] == [
        (f"main:{number}", name, f'"{what} {number}"')
        for number in (1, 2, 3)
        for name, what in (("look_up", "user"), ("fetch", "tides"))
    ]
    assert all(step.result is not None for step in shown)
    assert SECRET not in str(msgspec.to_builtins(shown))


async def test_if_all_is_sealed_a_reader_without_the_key_sees_names_sizes_and_durations(
    shared_ledger: SharedLedger,
) -> None:
    shared_ledger.mode = SealMode.ALL
    task_id = await run_once(shared_ledger.stage(), research, "tides")
    stored = dump(shared_ledger.open())
    with_key = steps_of(shared_ledger.open(), task_id, full=True)
    shared_ledger.outer = MemoryKey()
    vault = Vault(shared_ledger.outer, is_lenient=True)
    vault.is_away = True

    with closing(shared_ledger._open(shared_ledger.clock, vault)) as reader:
        shown = steps_of(reader, task_id, full=True)

    assert "tide" not in str([stored["turns"], stored["kept_steps"], stored["steps"]])
    assert with_key[0].result["text"] == LONG
    assert [(step.name, step.is_sealed, step.preview, step.result) for step in shown] == [
        (name, True, "[sealed]", None) for name in ("fetch", "send", "fetch", "send")
    ]
    assert [step.size_bytes for step in shown] == [step.size_bytes for step in with_key]


# --- forks


async def test_a_fork_keeps_what_its_turns_have_kept(stage: Stage) -> None:
    await stage.open(research)
    handle = await stage.start(research("tides"))
    await stage.settle()

    forked = await stage.holdfast.fork(handle, at="main:1", effects="acknowledge")

    first, effect = steps_of(stage.store, str(forked.id), full=True)
    assert first.result == {"topic": "tides", "limit": 1, "text": LONG}
    assert (effect.name, effect.arguments, effect.is_kept) == ("send", '"ada"', False)
    assert stage.store.verify() == []


# --- the setting


@pytest.mark.parametrize(("setting", "count"), [("", 2), ("[store]\nkeep_results = 0\n", 0)])
async def test_the_settings_say_up_to_which_size_results_stay(
    quick_path: Path, setting: str, count: int
) -> None:
    (quick_path / "holdfast.toml").write_text(setting, encoding="utf-8")
    url = f"sqlite:///{quick_path / 'ledger.db'}"

    async with hf.open(url, tasks=[research], home=quick_path) as holdfast:
        await (await holdfast.start(research("tides"))).result()

    with closing(apsw.Connection(str(quick_path / "ledger.db"))) as ledger:
        assert list(ledger.execute("SELECT count(*) FROM kept_steps")) == [(count,)]


@pytest.mark.parametrize("value", ["-1", "65537", '"16KB"', "true", "1.5"])
def test_a_size_that_makes_no_sense_is_refused_with_what_to_write(quick_path: Path, value: str) -> None:
    (quick_path / "holdfast.toml").write_text(f"[store]\nkeep_results = {value}\n", encoding="utf-8")

    with pytest.raises(SettingsError, match=r"store\.keep_results .* write a number of bytes from 0 to"):
        read_settings({}, home=str(quick_path))
