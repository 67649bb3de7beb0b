"""`holdfast.open`: the whole set-up of a script, which leaves its work in good order however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

import holdfast as hf
from holdfast.core.errors import CheckpointNotSaved
from holdfast.core.redaction import keep_secret, redact_json, redact_text
from holdfast.core.transitions import TaskStatus
from holdfast.engine.program.secrets import Secrets
from holdfast.engine.worker.drain import Drain
from holdfast.engine.worker.worker import Worker
from holdfast.store.verify import scan
from tests.engine.workers import GateAndNotes, soon, waiting_task


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, quick_path: Path) -> Iterator[str]:
    """A ledger that can be opened again."""
    if request.param == "sqlite":
        yield f"sqlite:///{quick_path / 'work.db'}"
        return
    server = request.getfixturevalue("postgres_server")
    made = server.create_database()
    yield made
    server.drop_database(made)


@pytest.fixture(autouse=True)
def home(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(quick_path / "home"))


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_what_the_body_raises_comes_out_as_itself(url: str, gate: GateAndNotes) -> None:
    waiting = waiting_task(gate)

    async def script() -> None:
        async with hf.open(url, tasks=[waiting]) as holdfast:
            await holdfast.start(waiting())
            await soon(gate.entered.wait())
            raise LookupError("of the script's own")

    with pytest.raises(LookupError):
        await script()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_step_may_open_another_ledger_whose_programs_are_no_part_of_it(
    url: str, quick_path: Path
) -> None:
    async def answer() -> int:
        return 42

    @hf.task
    async def inner(run: hf.Run) -> int:
        async for turn in run.turns():
            return await turn.step(answer)
        return 0

    async def elsewhere() -> int:
        async with hf.open(f"sqlite:///{quick_path / 'elsewhere.db'}", tasks=[inner]) as other:
            return await (await other.start(inner())).result()

    @hf.task
    async def outer(run: hf.Run) -> int:
        return await run.step(elsewhere)

    async with hf.open(url, tasks=[outer]) as holdfast:
        assert await soon((await holdfast.start(outer())).result()) == 42


async def test_leaving_pauses_what_is_in_flight_and_opening_again_resumes_it(
    url: str, gate: GateAndNotes
) -> None:
    waiting = waiting_task(gate)
    async with hf.open(url, tasks=[waiting]) as holdfast:
        handle = await holdfast.start(waiting(), key="once")
        await soon(gate.entered.wait())
    async with hf.open(url) as holdfast:
        between = await holdfast.handle(handle.id).status()
    gate.open.set()
    async with hf.open(url, tasks=[waiting]) as holdfast:
        again = await holdfast.start(waiting(), key="once")
        result = await soon(again.result())

    assert (again.id, between, result) == (handle.id, TaskStatus.PAUSED, "after")
    assert gate.notes == ["before", "after"]


@hf.task
async def upgrades(run: hf.Run) -> str:
    await run.requires_restart("a new driver")
    return "upgraded"


async def test_a_script_that_restarts_itself_goes_on_with_the_run_that_asked_for_it(url: str) -> None:
    asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async with hf.open(url, tasks=[upgrades], on_restart=asked.set_result) as holdfast:
        handle = await holdfast.start(upgrades())
        assert await soon(asked) == "a new driver"
        assert await handle.status() is TaskStatus.RUNNING
    async with hf.open(url, tasks=[upgrades]) as holdfast:
        assert await soon(holdfast.handle(handle.id).result()) == "upgraded"


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_script_that_cannot_restart_itself_says_so_to_the_run_that_asks(url: str) -> None:
    async with hf.open(url, tasks=[upgrades]) as holdfast:
        handle = await holdfast.start(upgrades())

        with pytest.raises(hf.TaskFailed, match="this process cannot restart itself: let a gateway run"):
            await soon(handle.result())


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_what_is_no_function_cannot_restart(url: str) -> None:
    with pytest.raises(hf.BadInput, match="on_restart: a function of the reason is needed, not bool"):
        async with hf.open(url, tasks=[upgrades], on_restart=True):  # type: ignore[arg-type]
            pass


async def test_a_body_that_is_cancelled_leaves_its_work_in_good_order(url: str, gate: GateAndNotes) -> None:
    waiting = waiting_task(gate)
    ids: list[str] = []

    async def script() -> None:
        async with hf.open(url, tasks=[waiting]) as holdfast:
            ids.append((await holdfast.start(waiting())).id)
            await asyncio.sleep(3600)

    child = asyncio.ensure_future(script())
    await soon(gate.entered.wait())
    child.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(child)
    async with hf.open(url) as holdfast:
        assert await holdfast.handle(ids[0]).status() is TaskStatus.PAUSED


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_when_the_work_itself_breaks_the_body_learns_it(
    url: str, gate: GateAndNotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def break_down(worker: Worker) -> None:
        await asyncio.sleep(0)
        raise MemoryError("no more")

    monkeypatch.setattr(Worker, "run", break_down)

    with pytest.raises(MemoryError):
        async with hf.open(url, tasks=[waiting_task(gate)]):
            await asyncio.sleep(3600)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_pause_that_could_not_be_saved_is_an_error_unless_the_body_has_one(
    url: str, gate: GateAndNotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(drain: Drain, *, may_go_on: bool) -> None:
        raise CheckpointNotSaved("run_x", "says the test")

    monkeypatch.setattr(Drain, "run", fail)

    with pytest.raises(CheckpointNotSaved):
        async with hf.open(url, tasks=[waiting_task(gate)]):
            pass
    with pytest.raises(LookupError):
        async with hf.open(url, tasks=[waiting_task(gate)]):
            raise LookupError("of the script's own")


async def test_without_tasks_it_only_starts_and_looks(url: str, gate: GateAndNotes) -> None:
    waiting = waiting_task(gate)
    async with hf.open(url) as holdfast:
        handle = await holdfast.start(waiting())

        assert await holdfast.unknown_names() == ["waiting"]
        assert await handle.status() is TaskStatus.QUEUED
    assert gate.notes == []


async def test_a_ledger_in_memory_works_like_any_other(gate: GateAndNotes) -> None:
    waiting = waiting_task(gate)
    gate.open.set()
    async with hf.open("memory:", tasks=[waiting]) as holdfast:
        assert await soon((await holdfast.start(waiting())).result()) == "after"


async def test_one_process_may_open_a_ledger_twice(url: str, gate: GateAndNotes) -> None:
    waiting = waiting_task(gate)
    gate.open.set()
    async with (
        hf.open(url, tasks=[waiting]) as one,
        hf.open(url, tasks=[waiting]) as other,
    ):
        handles = [await holdfast.start(waiting()) for holdfast in (one, other) * 5]
        for handle in handles:
            assert await soon(handle.result()) == "after"

    assert Counter(gate.notes) == {"before": 10, "after": 10}


async def test_a_handle_of_another_process_sees_the_end(url: str, gate: GateAndNotes) -> None:
    waiting = waiting_task(gate)
    async with hf.open(url, tasks=[waiting]) as worker, hf.open(url) as watcher:
        handle = await worker.start(waiting())
        watching = asyncio.ensure_future(watcher.handle(handle.id).result())
        await soon(gate.entered.wait())
        gate.open.set()

        assert await soon(watching) == "after"


async def test_two_tasks_of_one_name_are_refused(quick_path: Path, gate: GateAndNotes) -> None:
    with pytest.raises(hf.BadInput, match="two tasks are called"):
        async with hf.open("memory:", tasks=[waiting_task(gate), waiting_task(gate)]):
            pass


async def test_a_drain_timeout_that_is_none_is_refused() -> None:
    with pytest.raises(hf.BadInput, match="drain_timeout"):
        async with hf.open("memory:", drain_timeout="soon"):
            pass


# --- secrets


VALUE = "correct horse battery staple"


async def secret_was_given(url: str, **options: object) -> tuple[object, str]:
    """What a step was given for a secret, and everything that was stored meanwhile but what it returned."""
    seen: list[object] = []

    async def call(token: str, headers: dict[str, str], plain: list[str]) -> str:
        seen.append((token, headers, plain))
        return f"the server said: {token} is right"

    @hf.task
    async def agent(run: hf.Run, token: hf.Secret) -> str:
        with contextlib.suppress(hf.StepFailed):
            await run.step(fail, token)
        return await run.step(call, token, {"Authorization": token}, ["a", token])

    async def fail(token: str) -> None:
        raise ValueError(f"{token} is wrong")

    async with hf.open(url, tasks=[agent], **options) as holdfast:  # type: ignore[arg-type]
        handle = await holdfast.start(agent(hf.secret("SHOP_TOKEN")))
        result = await soon(handle.result())
        stored = holdfast.store.read_now(
            lambda tx: [*scan(tx, "steps", 4), *scan(tx, "tasks", 1), *tx.events.of_task(handle.id)]
        )
        task = holdfast.store.read_now(lambda tx: tx.tasks.get(handle.id))
    assert msgspec.json.decode(task.arguments) == {"token": {"$secret": "SHOP_TOKEN"}}
    # The program has what it was given, and no other reader has: it is sealed.
    assert result == f"the server said: {VALUE} is right"
    return seen[0], repr(stored)


async def test_a_secret_is_found_when_a_step_is_called_and_stored_only_by_its_name(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_SHOP_TOKEN", VALUE)

    seen, stored = await secret_was_given(url)

    assert seen == (VALUE, {"Authorization": VALUE}, ["a", VALUE])
    assert VALUE not in stored
    assert VALUE not in caplog.text


async def test_a_secret_may_be_found_by_a_function_of_the_script(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SHOP_TOKEN", raising=False)

    seen, stored = await secret_was_given("memory:", secrets={"SHOP_TOKEN": VALUE}.get)

    assert seen == (VALUE, {"Authorization": VALUE}, ["a", VALUE])
    assert VALUE not in stored


def test_a_secret_that_is_not_declared_says_where_to_declare_it() -> None:
    with pytest.raises(hf.BadInput, match=r"HOLDFAST_SECRET_SHOP_TOKEN.*\[secrets.SHOP_TOKEN\]"):
        Secrets(environment={}).find("SHOP_TOKEN", task="buy")


def test_only_what_is_declared_is_found_and_the_environment_s_own_name_never() -> None:
    environment = {"A": "its own a", "HOLDFAST_SECRET_B": "ours b", "B": "its own b"}
    given = Secrets({"A": "given a", "B": "given b", "C": lambda: "made c"}, environment)

    assert [given.find(name, task="t") for name in "ABC"] == ["given a", "ours b", "made c"]
    with pytest.raises(hf.BadInput, match="not declared"):
        Secrets(environment=environment).find("A", task="t")


def test_a_value_that_was_found_once_is_a_secret_everywhere() -> None:
    Secrets({"A": "swordfish"}).find("A", task="t")

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(redact_text, "say swordfish").result() == "say [redacted:secret]"


@pytest.mark.parametrize("value", ["true", "null", '":{}', 'a"b\\c', "ключ-от-моря"])
def test_json_stays_json_whatever_a_secret_looks_like(value: str) -> None:
    def redacted(encoded: bytes) -> bytes:
        keep_secret(value)
        return redact_json(encoded)

    encoded = msgspec.json.encode({"said": f"<{value}>", "is": True, "was": None, "in": {"a": {}}})

    assert msgspec.json.decode(contextvars.copy_context().run(redacted, encoded)) == {
        "said": "<[redacted:secret]>",
        "is": True,
        "was": None,
        "in": {"a": {}},
    }


@pytest.mark.parametrize("name", ["sk-proj-abc", "", "lower", "WITH SPACE", None, "A" * 101])
def test_what_is_no_name_of_a_secret_is_refused_without_showing_it(name: object) -> None:
    with pytest.raises(hf.BadInput) as refused:
        hf.secret(name)  # type: ignore[arg-type]

    assert not name or str(name) not in str(refused.value)


async def test_a_reference_that_a_model_wrote_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", VALUE)
    seen: list[object] = []

    @hf.idempotent
    async def look(what: object) -> None:
        seen.append(what)

    @hf.task
    async def agent(run: hf.Run) -> None:
        async for turn in run.turns(max=1):
            await turn.tool(look, {"what": {"$secret": "SHOP_TOKEN"}})

    async with hf.open("memory:", tasks=[agent]) as holdfast:
        await soon((await holdfast.start(agent())).result())

    assert seen == [{"$secret": "SHOP_TOKEN"}]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts in /proc")
def test_opening_again_and_again_leaves_nothing_open(quick_path: Path) -> None:
    async def script() -> None:
        gate = GateAndNotes()
        gate.open.set()
        waiting = waiting_task(gate)
        async with hf.open(f"sqlite:///{quick_path / 'work.db'}", tasks=[waiting]) as holdfast:
            await soon((await holdfast.start(waiting())).result())

    asyncio.run(script())
    before = descriptors()
    asyncio.run(script())

    assert descriptors() <= before + 1  # the guard's own, which is never closed
