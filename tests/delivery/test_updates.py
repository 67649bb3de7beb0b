"""The person who asked for a detached task hears once how it ended, as the policy of the task says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.delivery import Delivery, is_told
from holdfast.core.task import NotifyPolicy, Origin
from holdfast.core.transitions import TaskStatus
from holdfast.engine.program.author_api import Run
from holdfast.runtimes.contract import AgentInput
from holdfast.store import Store
from holdfast.testing import Crashed, FailingStore, FakeClock, memory_store
from tests.engine.stage import Stage
from tests.gateway.chats import GROUP, Chat, agent

SOMEONE = Origin(channel="hook", peer="ada")
P, T = NotifyPolicy, TaskStatus


@hf.task(attempts=1)
async def beds(run: hf.Run, answer: str = "40 beds") -> str:
    if answer == "fail":
        raise ValueError("<b>no</b> garden")
    if answer == "wait":
        await run.sleep("1h")
    return answer


@hf.task
async def two_parts(run: hf.Run) -> int:
    for part in [await run.spawn(beds()), await run.spawn(beds())]:
        await part.result()
    return 80


@pytest.fixture
def stage(store: Store, clock: FakeClock, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(store, clock, tmp_path / "boots")
    yield stage
    stage.kill()


def owed(store: Store) -> list[Delivery]:
    """In the order in which they are sent."""
    return sorted(store.read_now(lambda tx: tx.deliveries.owed()), key=lambda one: one.created_at)


def texts(store: Store) -> list[str]:
    return [one.letter.text for one in owed(store)]


async def test_the_end_of_a_detached_task_is_told_in_the_session_and_owed_to_its_person(
    stage: Stage, store: Store
) -> None:
    async def delegates(run: Run, heard: AgentInput) -> str:
        await run.spawn(beds(), goal="count the beds", attached=False)
        return "I will tell you"

    chat = Chat(stage, agent(delegates))
    await stage.open(*chat.agents, beds)
    await chat.say("how many beds?", origin=GROUP, channel_message_id="7")

    await chat.talk()

    (task,) = [one for one in store.read_now(lambda tx: tx.tasks.page()) if one.name == "beds"]
    told = f"[System] “count the beds” is done after 0s ({task.id}): 40 beds"
    assert [one for one in await chat.transcript() if "40 beds" in one] == [f"system: {told}"]
    update = next(one for one in owed(store) if one.letter.text == told)
    assert (update.origin, update.task_id) == (GROUP, task.id)
    (run,) = store.read_now(lambda tx: tx.runs.of_task(task.id))
    assert update.idempotency_key == f"task:{task.id}:{run.id}:succeeded"
    # The answer itself is owed once, and answers the message by its sender's own id.
    (answer,) = [one for one in owed(store) if one.letter.text == "I will tell you"]
    assert answer.letter.reply_to == "7"


async def test_an_update_follows_into_no_transcript_when_its_task_has_no_session(
    stage: Stage, store: Store
) -> None:
    await stage.open(beds)

    await stage.run(beds(), goal="count the beds", origin=SOMEONE)

    (delivery,) = owed(store)
    assert delivery.origin == SOMEONE
    assert delivery.letter.session_key is None
    assert delivery.letter.text.endswith(": 40 beds")


async def test_a_failure_is_told_with_its_reason_and_without_tags(stage: Stage, store: Store) -> None:
    await stage.open(beds)

    await (await stage.start(beds("fail"), goal="count <i>the</i>\nbeds", origin=SOMEONE)).task()
    await stage.settle()

    (text,) = texts(store)
    assert text.startswith("[System] “count ‹i›the‹/i› beds” failed")  # noqa: RUF001 - that is the point
    assert text.endswith("no‹/b› garden")  # noqa: RUF001 - that is the point


async def test_silent_is_silent_and_a_task_without_an_origin_tells_nobody(stage: Stage, store: Store) -> None:
    await stage.open(beds)

    await stage.run(beds(), origin=SOMEONE, notify="silent")
    await stage.run(beds())

    assert owed(store) == []


async def test_children_that_a_task_waits_for_are_not_told_of(stage: Stage, store: Store) -> None:
    await stage.open(beds, two_parts)

    await stage.run(two_parts(), goal="both gardens", origin=SOMEONE)

    (text,) = texts(store)
    assert text.startswith("[System] “both gardens” is done")


@pytest.mark.parametrize(("policy", "count"), [("done_only", 1), ("state_changes", 2)])
async def test_waiting_is_told_if_the_policy_says_so(
    stage: Stage, store: Store, policy: str, count: int
) -> None:
    await stage.open(beds)

    await stage.run(beds("wait"), goal="beds", origin=SOMEONE, notify=policy)

    assert len(texts(store)) == count
    assert (texts(store)[0].startswith("[System] “beds” waits")) is (count == 2)


async def test_a_task_that_fails_again_after_a_retry_is_told_of_again(stage: Stage, store: Store) -> None:
    await stage.open(beds)
    handle = await stage.start(beds("fail"), goal="beds", origin=SOMEONE)
    await stage.settle()

    await handle.retry()
    await stage.settle()

    assert [text.startswith("[System] “beds” failed") for text in texts(store)] == [True, True]


async def test_a_cancel_is_told_once(stage: Stage, store: Store) -> None:
    await stage.open(beds)
    handle = await stage.start(beds("wait"), goal="beds", origin=SOMEONE)
    await stage.settle()

    for _ in range(2):
        await handle.cancel("no longer needed")

    (text,) = texts(store)
    assert text.endswith(": no longer needed")


@pytest.mark.parametrize("policy", list(P))
@pytest.mark.parametrize("status", list(T))
def test_a_policy_names_what_is_told(policy: NotifyPolicy, status: TaskStatus) -> None:
    ends = {T.SUCCEEDED, T.FAILED, T.TIMED_OUT, T.CANCELLED, T.LOST}
    wanted = {P.SILENT: set(), P.DONE_ONLY: ends, P.STATE_CHANGES: ends | {T.WAITING, T.NEEDS_REVIEW}}

    assert is_told(policy, status) is (status in wanted[policy])


async def test_a_crash_at_any_write_of_an_end_tells_once(tmp_path: Path) -> None:
    async def life(store: Any, number: int) -> None:
        stage = Stage(store, FakeClock(), tmp_path / f"boots-{number}")
        try:
            await stage.open(beds)
            await stage.start(beds(), key="one", goal="beds", origin=SOMEONE)
            await stage.settle()
        finally:
            stage.kill()

    recorded = FailingStore(memory_store())
    await life(recorded, 0)

    for number, point in enumerate(recorded.failpoints(), 1):
        store = memory_store()
        with contextlib.suppress(Crashed, BaseExceptionGroup):
            await life(FailingStore(store, [point]), number)
        await life(store, number)

        assert len(texts(store)) == 1, point
        store.close()
