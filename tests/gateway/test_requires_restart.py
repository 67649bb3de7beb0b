"""A run asks its gateway for a restart: it gets one, or goes on at once with the refusal; also if killed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import pytest

import holdfast as hf
from holdfast.core.errors import StoreUnavailable
from holdfast.core.message import Role
from holdfast.core.task import Origin
from holdfast.core.transitions import RestartStatus
from holdfast.engine.program.run_phase import StopReason
from holdfast.gateway.inbox import Inbox
from holdfast.store import Store, Write
from holdfast.testing import FakeClock, WrappingStore, name_of
from holdfast.tools import restart_gateway
from tests.engine.workers import soon, until
from tests.gateway.broken_store import BrokenStore
from tests.gateway.gateways import Hosted, document_of, hosted
from tests.gateway.waiting_programs import WaitingPrograms

pytestmark = pytest.mark.slow

BOB = Origin(channel="webhook", peer="bob", account_id="two")
KEY = "agent:main:upgrades"
WHY = "a new driver"


class Upgrade:
    """An agent that asks for a restart, and what it learned: once for each time that it got so far."""

    def __init__(self) -> None:
        self.learned: list[str] = []
        self.ended: list[str] = []

    def task(self) -> hf.TaskDefinition[..., str]:
        async def note(text: str) -> str:
            self.ended.append(text)
            return text

        @hf.task(name="agent.main")
        async def agent(run: hf.Run, session_key: str = "", message_id: str = "", until: int = 0) -> str:
            try:
                await run.requires_restart(WHY)
            except hf.RestartRefused as refused:
                answer = f"refused: {refused.why}"
            else:
                answer = "restarted"
            self.learned.append(answer)
            await run.step(note, answer)
            # A replay must not learn anything else.
            await run.sleep("1h")
            return answer

        return agent


@pytest.fixture
def upgrade() -> Upgrade:
    return Upgrade()


async def ask(one: Hosted, text: str = "please upgrade") -> str:
    """The id of the task that answers the message."""
    await one.gateway.inbox.post(KEY, text, BOB, channel_message_id="m1")
    found: list[str | None] = [None]

    async def look() -> bool:
        session = await one.gateway.store.read(lambda tx: tx.sessions.find(KEY))
        found[0] = None if session is None else session.task_id
        return found[0] is not None

    await until_true(look)
    assert found[0] is not None
    return found[0]


async def until_true(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20.0):
        while not await is_so():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


async def told(store: Store, clock: FakeClock) -> list[str]:
    """What the gateway itself has said in the session."""
    found = await Inbox(store, clock).messages(KEY)
    return [one.text for one in found if one.role is Role.SYSTEM]


# --- it is done


async def test_the_run_that_asked_stands_in_its_own_manifest_which_names_its_session(
    store: Store, clock: FakeClock, tmp_path: Path, upgrade: Upgrade
) -> None:
    agent, home = upgrade.task(), tmp_path / "home"
    async with hosted(store, clock, home, agent) as one:
        task_id = await ask(one, "please upgrade")
        assert await one.ended()
        (restart,) = await one.restarts()
    manifest = document_of(home / "restart-manifest.json")
    assert (manifest["reason"], manifest["triggeredBy"]) == (WHY, KEY)
    assert [one["taskId"] for one in manifest["interruptions"]] == [task_id]
    (session,) = manifest["activeSessions"]
    assert (session["key"], session["lastUserMessage"]) == (KEY, "please upgrade")
    assert restart.status is RestartStatus.DRAINED
    (checkpoint,) = await store.read(lambda tx: tx.checkpoints.page())
    document = checkpoint.read_document()
    assert (checkpoint.reason, document.note) == ("requires_restart", WHY)
    assert document.cursor.last_completed == "requires restart"

    async with hosted(store, clock, home, agent) as other:
        await until(lambda: upgrade.learned == ["restarted"])
        assert len(await other.restarts()) == 1
        assert await told(store, clock) == []


async def test_without_a_session_the_manifest_names_the_task(
    store: Store, clock: FakeClock, tmp_path: Path, upgrade: Upgrade
) -> None:
    agent, home = upgrade.task(), tmp_path / "home"
    async with hosted(store, clock, home, agent) as one:
        handle = await one.gateway.holdfast.start(agent())
        assert await one.ended()
    assert document_of(home / "restart-manifest.json")["triggeredBy"] == handle.id


# --- it is refused


async def test_when_the_next_gateway_could_not_start_the_run_goes_on_at_once_and_its_session_is_told(
    store: Store, clock: FakeClock, tmp_path: Path, upgrade: Upgrade
) -> None:
    agent = upgrade.task()
    async with hosted(store, clock, tmp_path / "home", agent, why_not=lambda: "no module garden") as one:
        task_id = await ask(one)
        await until(lambda: upgrade.ended != [])

        why = "the next gateway could not start: no module garden"
        assert upgrade.ended == [f"refused: {why}"]
        (said,) = await told(store, clock)
        assert said == (
            f"[System] The restart that this session asked for was refused: {why}. "
            f"Its task {task_id} goes on."
        )
        (restart,) = await one.restarts()
        assert restart.status is RestartStatus.BLOCKED
        assert (restart.manifest.reason, restart.manifest.triggered_by) == (WHY, KEY)
        assert restart.outcome is not None
        assert restart.outcome.why_blocked == why
        assert [found.task_id for found in restart.manifest.interruptions] == [task_id]
        # To the person whose message is being answered.
        owed = await store.read(lambda tx: tx.deliveries.owed())
        assert [one.origin for one in owed] == [BOB]


async def test_when_the_manifest_cannot_be_written_the_run_goes_on_in_the_same_run(
    store: Store, clock: FakeClock, tmp_path: Path, upgrade: Upgrade
) -> None:
    agent, home = upgrade.task(), tmp_path / "home"
    (home / "restart-manifest.json").mkdir(parents=True)
    async with hosted(store, clock, home, agent) as one:
        task_id = await ask(one)
        await until(lambda: upgrade.ended != [])

        (answer,) = upgrade.ended
        assert answer.startswith(f"refused: the manifest {home / 'restart-manifest.json'} cannot be written")
        assert upgrade.learned == [answer]
        (run,) = await store.read(lambda tx: tx.runs.of_task(task_id))
        assert run.number == 1
        assert one.gateway.status().status == "serving"
        (restart,) = await one.restarts()
        assert restart.status is RestartStatus.BLOCKED


async def test_when_a_checkpoint_cannot_be_saved_the_refusal_names_the_run_and_all_go_on(
    store: Store, clock: FakeClock, tmp_path: Path, upgrade: Upgrade
) -> None:
    programs = WaitingPrograms()
    agent, waiting, broken = upgrade.task(), programs.waiting(), BrokenStore(store)
    async with hosted(broken, clock, tmp_path / "home", agent, waiting) as one:
        broken.refuses = lambda name: "paus" in name
        other = await one.gateway.holdfast.start(waiting())
        await programs.entered()
        await ask(one)
        await until(lambda: one.gateway._worker._is_stopping)
        programs.open.set()
        await until(lambda: upgrade.ended != [])
        broken.refuses = lambda _name: False

        (run,) = await store.read(lambda tx: tx.runs.of_task(other.id))
        (answer,) = upgrade.ended
        assert answer == f"refused: no checkpoint of {run.id} was saved: the disk is full, says the test"
        (restart,) = await one.restarts()
        assert restart.outcome is not None
        assert answer == f"refused: {restart.outcome.why_blocked}"
        assert await soon(other.result()) == "after"


async def test_a_ledger_that_is_away_loses_no_refusal(
    store: Store, clock: FakeClock, tmp_path: Path, upgrade: Upgrade
) -> None:
    """Neither the restart nor its refusal can be written; the run is replayed when the ledger is back."""
    agent, broken = upgrade.task(), BrokenStore(store)
    asked: list[str] = []

    def refuses(name: str) -> bool:
        # From the first word of the restart on.
        if name.endswith("begin") or asked:
            asked.append(name)
        return bool(asked)

    async with hosted(broken, clock, tmp_path / "home", agent) as one:
        broken.refuses = refuses
        await ask(one)
        await until(lambda: any(name.endswith("Waits.note.<locals>.note") for name in asked))
        broken.refuses = lambda _name: False
        await until(lambda: upgrade.ended != [])

        (answer,) = upgrade.ended
        assert answer == "refused: the disk is full, says the test"
        assert len(await told(store, clock)) == 1


async def test_a_refusal_that_no_program_catches_ends_the_task_and_a_retry_asks_again(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    why_not: list[str | None] = ["no module garden"]

    @hf.task(name="upgrade", attempts=5)
    async def upgrades(run: hf.Run) -> str:
        await run.requires_restart(WHY)
        return "upgraded"

    home = tmp_path / "home"
    async with hosted(store, clock, home, upgrades, why_not=lambda: why_not[0]) as one:
        handle = await one.gateway.holdfast.start(upgrades())
        with pytest.raises(hf.TaskFailed, match="RestartRefused: the restart was refused: the next gateway"):
            await soon(handle.result())
        why_not[0] = None
        clock.advance(seconds=1)

        await handle.retry()

        assert await one.ended()
    async with hosted(store, clock, home, upgrades) as other:
        assert await soon(other.gateway.holdfast.handle(handle.id).result()) == "upgraded"
        statuses = [one.status for one in await other.restarts()]
    assert statuses == [RestartStatus.RECOVERED, RestartStatus.BLOCKED]


# --- it is killed

Where = Literal["before", "after"]


class KillingStore(WrappingStore):
    """Its process dies before or after the nth write of a name: from then on nothing of it is written, and it
    hears of nothing that was."""

    def __init__(self, inner: Store, name: str, nth: int, where: Where) -> None:
        super().__init__(inner)
        self.died = asyncio.Event()
        self._name, self._left, self._where = name, nth, where

    @property
    def is_dead(self) -> bool:
        return self.died.is_set()

    async def write(self, write: Write[Any]) -> Any:
        is_it = False
        if name_of(write).endswith(self._name):
            self._left -= 1
            is_it = self._left == 0
        if is_it and self._where == "before":
            self.died.set()
        await self._unless_dead()
        answer = await self.inner.write(write)
        if is_it:
            self.died.set()
        await self._unless_dead()
        return answer

    async def _unless_dead(self) -> None:
        if self.is_dead:
            raise StoreUnavailable("the process is dead, says the test")


NOTE = "Waits.note.<locals>.note"
BEGUN = "Gateway._begin_restart.<locals>.begin"
PAUSED = "pausing.<locals>.pause"
DRAINED = "Gateway._note_end.<locals>.note"
REFUSED = "noting.<locals>.note"


async def lives(
    store: Store, clock: FakeClock, home: Path, upgrade: Upgrade, why_not: Callable[[], str | None]
) -> None:
    """One life of the gateway after another, until the agent has learned what became of its request."""
    agent = upgrade.task()
    for _ in range(3):
        async with hosted(store, clock, home, agent, why_not=why_not) as one:
            done = asyncio.ensure_future(until(lambda: upgrade.ended != []))
            await asyncio.wait([done, one.running], return_when=asyncio.FIRST_COMPLETED)
            done.cancel()
            await asyncio.gather(done, return_exceptions=True)
        if upgrade.ended:
            return


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize(
    ("name", "nth"),
    [(NOTE, 1), (BEGUN, 1), (PAUSED, 1), (DRAINED, 1)],
    ids=["ask", "begin", "pause", "drained"],
)
async def test_a_gateway_that_is_killed_on_its_way_to_the_restart_has_restarted(
    store: Store, clock: FakeClock, tmp_path: Path, upgrade: Upgrade, name: str, nth: int, where: Where
) -> None:
    agent, home = upgrade.task(), tmp_path / "home"
    killing = KillingStore(store, name, nth, where)
    async with hosted(killing, clock, home, agent) as one:
        task_id = await ask(one)
        await soon(killing.died.wait())
    assert upgrade.learned == []

    await lives(store, clock, home, upgrade, lambda: None)

    assert upgrade.ended == ["restarted"]
    assert await told(store, clock) == []
    runs = await store.read(lambda tx: tx.runs.of_task(task_id))
    # Each of them follows the one before: there is no second resume of any.
    assert [one.resumes_run_id for one in runs] == [None, *(one.id for one in runs[:-1])]


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize(
    ("name", "nth"), [(NOTE, 1), (REFUSED, 1), (NOTE, 2)], ids=["ask", "refusal", "journal"]
)
async def test_a_refusal_is_what_the_journal_has_and_nothing_else(
    store: Store, clock: FakeClock, tmp_path: Path, upgrade: Upgrade, name: str, nth: int, where: Where
) -> None:
    agent, home = upgrade.task(), tmp_path / "home"
    killing = KillingStore(store, name, nth, where)

    def why_not() -> str:
        return "no module garden"

    async with hosted(killing, clock, home, agent, why_not=why_not) as one:
        await ask(one)
        await soon(killing.died.wait())
    assert upgrade.learned == []

    await lives(store, clock, home, upgrade, why_not)

    # It had not asked, and asks the next gateway; or the refusal is journalled. Else the process that was
    # asked is gone, whatever it had decided, so a restart is what has happened.
    is_refused = (name, nth, where) in {(NOTE, 1, "before"), (NOTE, 2, "after")}
    expected = "refused: the next gateway could not start: no module garden" if is_refused else "restarted"
    assert upgrade.ended == [expected]
    assert len(await told(store, clock)) == is_refused

    # One more life, which replays: it learns the same.
    async with hosted(store, clock, home, agent, why_not=why_not):
        clock.advance(hours=2)
        await until(lambda: len(upgrade.learned) >= 2)
    assert set(upgrade.learned) == {expected}
    assert upgrade.ended == [expected]
    assert len(await told(store, clock)) == is_refused


async def test_a_tool_that_was_refused_before_its_gateway_was_killed_is_refused_and_asks_no_second_time(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    programs = WaitingPrograms()
    waiting, home, answers = programs.waiting(), tmp_path / "home", list[Any]()

    @hf.task(name="asks")
    async def asks(run: hf.Run) -> None:
        answers.append(await run.tool(restart_gateway, {"reason": "new tools"}))

    killing = KillingStore(store, "FinishEffect", 1, "before")
    async with hosted(killing, clock, home, waiting, asks) as one:
        other = await one.gateway.holdfast.start(waiting())
        await programs.entered()
        asker = await one.gateway.holdfast.start(asks())
        await soon(killing.died.wait())
    assert answers == []

    async with hosted(store, clock, home, waiting, asks) as again:
        await soon(again.gateway.holdfast.handle(asker.id).result())
        refusals = [one for one in await again.restarts() if one.status is RestartStatus.BLOCKED]
    (answer,) = answers
    assert (answer.is_accepted, other.id in answer.would_interrupt) == (False, True)
    assert "1 run is busy (limit 0)" in answer.why
    assert len(refusals) == 1


async def test_a_run_that_is_given_back_while_it_waits_asks_once(
    store: Store, clock: FakeClock, tmp_path: Path, upgrade: Upgrade
) -> None:
    """Its process could not renew the lease, say: it is replayed there, and the request is the same."""
    agent = upgrade.task()
    tried = asyncio.Event()
    may_answer = asyncio.Event()
    async with hosted(store, clock, tmp_path / "home", agent) as one:

        async def trial() -> str | None:
            tried.set()
            await may_answer.wait()
            return "no module garden"

        one.gateway._trial = trial
        task_id = await ask(one)
        await soon(tried.wait())
        (carried,) = one.gateway._worker._in_flight.carried.values()
        carried.tell(StopReason.LEASE_LAPSED)
        await until(lambda: carried.child.done())
        await until(lambda: bool(one.gateway._worker._in_flight.carried))
        may_answer.set()
        await until(lambda: upgrade.ended != [])

        assert len(await one.restarts()) == 1
        assert len(await told(store, clock)) == 1
        (run,) = await store.read(lambda tx: tx.runs.of_task(task_id))
        assert run.number == 1
