"""An update in the queue of its session: heard once by the agent, unless a person dismisses it first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.api.deliveries import DeliveryAsked, dismissing_delivery, retrying_delivery
from holdfast.core.delivery import Delivery
from holdfast.core.task import NotifyPolicy, Origin
from holdfast.core.transitions import DeliveryStatus
from holdfast.engine.producers.producers import Producers
from holdfast.engine.producers.writes import NewRecord
from holdfast.engine.program.author_api import Run
from holdfast.gateway.inbox import Inbox
from holdfast.runtimes.contract import AgentInput
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.delivery.recording_channel import RecordingChannel, outbox
from tests.engine.stage import Stage
from tests.gateway.chats import KEY, Chat, agent

D = DeliveryStatus


@pytest.fixture
def stage(store: Store, clock: FakeClock, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(store, clock, tmp_path / "boots")
    yield stage
    stage.kill()


async def queued(store: Store, clock: FakeClock, **changes: Any) -> Delivery | None:
    """What is known of the update of a subagent that has ended, whose session nobody has written to."""
    await Inbox(store, clock).note(KEY, "begun", key="begun")
    new = {"name": "errand", "goal": "fetch milk", "runtime": "subagent", "owner": KEY} | changes
    producers = Producers(store, clock)
    work = await producers.create(NewRecord(**new), is_running=True)
    await producers.finish(work.run.id, "two bottles")
    found = store.read_now(lambda tx: tx.deliveries.of_task(work.task.id))
    return found[0] if found else None


def seen(store: Store, delivery: Delivery) -> Delivery:
    return store.read_now(lambda tx: tx.deliveries.get(delivery.id))


async def test_a_dismissed_update_does_not_wake_the_agent(
    stage: Stage, store: Store, clock: FakeClock
) -> None:
    delivery, heard = await queued(store, clock), list[str]()
    assert delivery is not None

    async def listens(run: Run, asked: AgentInput) -> None:
        heard.append(asked.message.text)

    asked = DeliveryAsked(delivery_id=delivery.id)
    store.write_now(dismissing_delivery(asked, by="ada", now=clock.now()))
    await (await Chat(stage, agent(listens)).begin()).talk()

    assert seen(store, delivery).status is D.DISMISSED
    assert heard == []
    assert store.read_now(lambda tx: tx.sessions.of_key(KEY)).queued == 0


async def test_an_agent_that_fails_has_not_heard_it_and_a_retry_wakes_it_again(
    stage: Stage, store: Store, clock: FakeClock
) -> None:
    delivery, heard = await queued(store, clock), list[str]()
    assert delivery is not None

    async def listens(run: Run, asked: AgentInput) -> None:
        heard.append(asked.message.text)
        if len(heard) == 1:
            raise ValueError("not today")

    chat = await Chat(stage, agent(listens)).begin()
    await chat.talk()
    failed = seen(store, delivery)
    clock.advance(seconds=1)
    asked = DeliveryAsked(delivery_id=delivery.id)
    store.write_now(retrying_delivery(asked, by="ada", now=clock.now()))
    await outbox(store, clock, RecordingChannel()).run_once()
    await chat.talk()

    assert (failed.status, failed.failure and failed.failure.kind) == (D.FAILED, "not_heard")
    assert seen(store, delivery).status is D.DELIVERED
    assert len(heard) == 2
    assert all("two bottles" in text for text in heard)


async def test_an_agent_that_was_woken_is_not_woken_by_what_it_starts_then(
    stage: Stage, store: Store, clock: FakeClock
) -> None:
    await queued(store, clock)
    heard: list[str] = []

    @hf.task
    async def another(run: hf.Run) -> str:
        return "three bottles"

    async def delegates(run: Run, asked: AgentInput) -> None:
        heard.append(asked.message.text)
        await run.spawn(another(), goal="fetch more", attached=False)

    chat = Chat(stage, agent(delegates))
    await stage.open(*chat.agents, another)
    await chat.talk()

    assert len(heard) == 1
    assert any("three bottles" in line for line in await chat.transcript()), "it is noted all the same"


async def test_a_producer_cannot_wake_a_session_that_does_not_own_its_work(
    store: Store, clock: FakeClock
) -> None:
    assert await queued(store, clock, owner="mallory", session_key=KEY) is None

    assert store.read_now(lambda tx: tx.sessions.of_key(KEY)).queued == 0


@pytest.mark.parametrize(
    ("runtime", "policy"),
    [
        ("subagent", NotifyPolicy.DONE_ONLY),
        ("acp", NotifyPolicy.DONE_ONLY),
        ("cron", NotifyPolicy.SILENT),
        ("cli", NotifyPolicy.SILENT),
        ("media", NotifyPolicy.SILENT),
    ],
)
async def test_runtimes_with_an_output_of_their_own_are_silent_unless_told_otherwise(
    store: Store, clock: FakeClock, runtime: str, policy: NotifyPolicy
) -> None:
    origin = Origin(channel="post", peer="ada")

    told = await queued(store, clock, runtime=runtime, origin=origin)
    asked = await queued(store, clock, runtime=runtime, origin=origin, notify="done_only")

    assert (told is None) is (policy is NotifyPolicy.SILENT)
    assert asked is not None
