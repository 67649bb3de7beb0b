"""Deliver a terminal update: a task ends, and the person who asked for it is told once, whatever dies."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

from holdfast.channels.contract import Undeliverable
from holdfast.core.delivery import Delivery
from holdfast.core.message import Role
from holdfast.core.task import Failure, Origin
from holdfast.core.transitions import DeliveryStatus, TaskStatus
from holdfast.delivery.outbox import Outbox
from holdfast.engine.producers.producers import Producers
from holdfast.engine.producers.writes import NewRecord
from holdfast.engine.program.author_api import Run
from holdfast.gateway.inbox import Inbox
from holdfast.runtimes.contract import AgentInput
from holdfast.store import Store
from holdfast.testing import Crashed, FailingStore, FakeClock
from tests.builders import a_boot, unique
from tests.delivery.recording_channel import RecordingChannel, raising
from tests.engine.stage import Stage
from tests.gateway.chats import Chat, agent

D = DeliveryStatus
Scenario: TypeAlias = Callable[[Store], Awaitable[None]]


class Owner:
    """A person in a session of her own, and the subagent that works for her."""

    def __init__(self) -> None:
        number = unique()
        self.session_key = f"agent:scholar:{number}"
        self.origin = Origin(channel="post", peer=f"ada {number}")
        self.run_id = f"render-{number}"

    async def asks(self, store: Store, clock: FakeClock) -> str:
        """She has spoken, and the work that she asked for runs."""
        await Inbox(store, clock).note(self.session_key, "hello", key=f"hello {self.run_id}", role=Role.USER)
        new = NewRecord(
            name="render",
            goal="render the title",
            runtime="subagent",
            owner=self.session_key,
            session_key=self.session_key,
            origin=self.origin,
            run_id=self.run_id,
        )
        return (await Producers(store, clock).create(new, is_running=True)).task.id

    def heard(self, post: RecordingChannel) -> list[str]:
        return [text for peer, text in post.sent if peer == self.origin.peer]

    def transcript(self, store: Store) -> list[str]:
        return [one.text for one in store.read_now(lambda tx: tx.messages.after(self.session_key, limit=99))]

    def deliveries(self, store: Store) -> list[Delivery]:
        task_id = store.read_now(lambda tx: tx.runs.get(self.run_id)).task_id
        return store.read_now(lambda tx: tx.deliveries.of_task(task_id))


async def finish_and_send(store: Store, clock: FakeClock, owner: Owner, post: RecordingChannel) -> None:
    """The scenario: the producer ends its task, and the outbox sends what is owed now."""
    boot_id = f"boot_{unique()}"
    inner: Store = getattr(store, "inner", store)
    inner.write_now(lambda tx: tx.boots.begin(a_boot(id=boot_id)))
    try:
        await Producers(store, clock).finish(owner.run_id, {"frames": 3}, summary="three frames")
        await Outbox(store, clock, {"post": post}, boot_id=boot_id).run_once()
    finally:
        inner.write_now(lambda tx: tx.boots.end(boot_id, now=clock.now()))


async def killed_everywhere(
    store: Store,
    scenario: Scenario,
    prepare: Callable[[], Awaitable[Scenario]],
    *,
    inside: bool = True,
) -> int:
    """Record the writes of one scenario. For each point, prepare another, kill it there and repeat it."""
    recorded = FailingStore(store)
    await scenario(recorded)
    points = [one for one in recorded.failpoints() if inside or one.where != "inside"]
    for point in points:
        again = await prepare()
        with contextlib.suppress(Crashed, BaseExceptionGroup):
            await again(FailingStore(store, [point]))
        await again(store)
    return len(points)


# --- direct outbound send


async def test_the_end_and_the_owed_update_are_one_write(store: Store, clock: FakeClock) -> None:
    owner = Owner()
    task_id = await owner.asks(store, clock)
    recording = FailingStore(store)

    await Producers(recording, clock).finish(owner.run_id, "done", summary="three frames")

    assert len(recording.calls) == 1
    assert store.read_now(lambda tx: tx.tasks.get(task_id)).status is TaskStatus.SUCCEEDED
    (owed,) = owner.deliveries(store)
    told = f"[System] “render the title” is done after 0s ({task_id}): three frames"
    assert (owed.status, owed.origin, owed.letter.text) == (D.PENDING, owner.origin, told)
    assert owed.idempotency_key == f"task:{task_id}:{owner.run_id}:succeeded"
    assert owner.transcript(store)[-1] == told, "the session has it, too"


async def test_a_channel_that_heeds_keys_tells_the_owner_once_whichever_write_dies(
    store: Store, clock: FakeClock
) -> None:
    post, owners = RecordingChannel(), [Owner()]
    await owners[0].asks(store, clock)

    def scenario_of(owner: Owner) -> Scenario:
        return lambda given: finish_and_send(given, clock, owner, post)

    async def another() -> Scenario:
        owners.append(Owner())
        await owners[-1].asks(store, clock)
        return scenario_of(owners[-1])

    count = await killed_everywhere(store, scenario_of(owners[0]), another)

    assert count > 15
    for owner in owners:
        assert len(owner.heard(post)) == 1
        assert [one.status for one in owner.deliveries(store)] == [D.DELIVERED]
        assert sum("three frames" in text for text in owner.transcript(store)) == 1


async def test_a_channel_without_keys_tells_the_owner_once_or_a_person_is_asked(
    store: Store, clock: FakeClock
) -> None:
    post, owners = RecordingChannel(is_keyed=False), [Owner()]
    await owners[0].asks(store, clock)

    def scenario_of(owner: Owner) -> Scenario:
        return lambda given: finish_and_send(given, clock, owner, post)

    async def another() -> Scenario:
        owners.append(Owner())
        await owners[-1].asks(store, clock)
        return scenario_of(owners[-1])

    await killed_everywhere(store, scenario_of(owners[0]), another)

    ends = set()
    for owner in owners:
        (one,) = owner.deliveries(store)
        heard, kind = len(owner.heard(post)), one.failure and one.failure.kind
        ends.add((heard, one.status, kind))
    # Delivered once; or it may or may not have gone out, and says so.
    assert ends == {(1, D.DELIVERED, None), (1, D.FAILED, "in_doubt"), (0, D.FAILED, "in_doubt")}


# --- fallback to the session's queue, and the wake of its agent


async def test_a_direct_send_that_fails_for_good_wakes_the_agent_of_the_session_once(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    # It knows what it sent, so that a sender that died in the send leaves no doubt.
    post, heard, owners = RecordingChannel(remembers=True), list[str](), list[Owner]()
    post.before = raising(Undeliverable("the number is not in use"), times=999)

    async def listens(run: Run, asked: AgentInput) -> None:
        heard.append(asked.message.text)

    def scenario_of(owner: Owner) -> Scenario:
        async def scenario(given: Store) -> None:
            await finish_and_send(given, clock, owner, post)
            stage = Stage(given, clock, tmp_path / "boots")
            try:
                await Chat(stage, agent(listens)).begin()
                await Chat(stage, agent(listens)).talk()
            finally:
                stage.kill()

        return scenario

    async def another() -> Scenario:
        owners.append(Owner())
        await owners[-1].asks(store, clock)
        return scenario_of(owners[-1])

    first = await another()
    await killed_everywhere(store, first, another, inside=False)

    for owner in owners:
        (one,) = owner.deliveries(store)
        assert (one.status, owner.heard(post)) == (D.DELIVERED, [])
        woken = [text for text in owner.transcript(store) if "could not be sent to post" in text]
        assert len(woken) == 1
        assert woken[0].endswith(": three frames")
        assert woken[0] in heard


async def test_what_may_have_gone_out_is_not_told_a_second_time_by_the_agent(
    store: Store, clock: FakeClock
) -> None:
    owner, post = Owner(), RecordingChannel()
    await owner.asks(store, clock)
    post.after = raising(ConnectionError("no answer"))

    await finish_and_send(store, clock, owner, post)
    clock.advance(minutes=1)
    post.before = raising(Undeliverable("the number is not in use"))
    await finish_and_send(store, clock, owner, post)

    (one,) = owner.deliveries(store)
    assert (one.status, one.failure and one.failure.kind) == (D.FAILED, "in_doubt")
    assert "no answer" in str(one.failure)
    assert len(owner.heard(post)) == 1


# --- the owner without an address


async def test_an_owner_without_an_address_hears_of_it_in_the_queue_of_its_session(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    owner, heard = Owner(), list[str]()
    await Inbox(store, clock).note(owner.session_key, "begun", key=owner.run_id)
    new = NewRecord(
        name="render", goal="render", runtime="subagent", owner=owner.session_key, run_id=owner.run_id
    )
    await Producers(store, clock).create(new, is_running=True)

    async def listens(run: Run, asked: AgentInput) -> None:
        heard.append(asked.message.text)

    await Producers(store, clock).fail(owner.run_id, Failure(kind="exit", message="no such font"))
    (queued,) = owner.deliveries(store)
    stage = Stage(store, clock, tmp_path / "boots")
    chat = await Chat(stage, agent(listens)).begin()
    await chat.talk()
    stage.kill()

    assert queued.status is D.SESSION_QUEUED
    assert [one.status for one in owner.deliveries(store)] == [D.DELIVERED]
    (text,) = heard
    assert text.startswith("[System] “render” failed")
    assert text.endswith(": no such font")


async def test_an_owner_whose_session_does_not_exist_is_recorded_as_missing(
    store: Store, clock: FakeClock
) -> None:
    owner = Owner()
    new = NewRecord(
        name="render", goal="render", runtime="subagent", owner=owner.session_key, run_id=owner.run_id
    )
    await Producers(store, clock).create(new, is_running=True)

    await Producers(store, clock).finish(owner.run_id, None)

    (one,) = owner.deliveries(store)
    assert one.status is D.PARENT_MISSING
    assert owner.session_key in str(one.failure)
