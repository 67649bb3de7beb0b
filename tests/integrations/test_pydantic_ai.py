"""A pydantic-ai agent inside a run: what it was answered and did is remembered."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    ModelMessage,
    ModelResponse,
    ModelRetry,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.exceptions import ModelHTTPError, UserError
from pydantic_ai.messages import AgentStreamEvent, RetryPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

import holdfast as hf
from holdfast.core.effect import Effect
from holdfast.integrations import pydantic_ai as bridge
from holdfast.integrations.pydantic_ai import HoldfastDurability, durable

pytestmark = pytest.mark.slow


class Diary:
    """What was really done, and what the model was told."""

    def __init__(self) -> None:
        self.asked = 0
        self.done: list[str] = []
        self.told: list[object] = []


@pytest.fixture
def diary() -> Diary:
    return Diary()


def an_agent(diary: Diary, *tools: Callable[..., Any], calls: int = 1, **options: Any) -> Agent[None, str]:
    """Calls its first tool that often, one after another, and then tells what the last call gave."""

    async def llm(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        diary.asked += 1
        parts = [part for message in messages for part in message.parts]
        answers = [part.content for part in parts if isinstance(part, (ToolReturnPart, RetryPromptPart))]
        diary.told = answers
        if len(answers) < calls and tools:
            place = len(answers) + 1
            call = ToolCallPart(tools[0].__name__, {"city": "Brest"}, tool_call_id=f"call-{place}")
            return ModelResponse(parts=[call])
        return ModelResponse(parts=[TextPart(str(answers[-1] if answers else "nothing"))])

    capability: HoldfastDurability[None] = HoldfastDurability(**options)
    return Agent(FunctionModel(llm), name="weather", tools=tools, capabilities=[capability])


def a_task(agent: Agent[None, str], *, failures: int = 0) -> hf.TaskDefinition[[], str]:
    """Asks the agent once; its first attempts fail after the agent has answered."""

    @hf.task(attempts=failures + 1, backoff="1ms")
    async def ask(run: hf.Run) -> str:
        async with durable(run):
            answer = await agent.run("How is the weather?")
        if run.number <= failures:
            raise RuntimeError("the power is gone")
        return answer.output

    return ask


async def carried(task: hf.TaskDefinition[[], str]) -> str:
    async with hf.open("memory:", tasks=[task]) as holdfast:
        return await (await holdfast.start(task())).result()


async def effects_of(holdfast: hf.Holdfast, task_id: str) -> list[Effect]:
    return await holdfast.store.read(lambda tx: tx.effects.of_task(task_id))


# --- remembering


async def test_the_model_is_not_asked_again_what_it_has_answered(diary: Diary) -> None:
    @hf.read
    async def look(city: str) -> str:
        diary.done.append(city)
        return "sunny"

    result = await carried(a_task(an_agent(diary, look), failures=2))

    assert (result, diary.asked, diary.done) == ("sunny", 2, ["Brest"])


async def test_outside_of_a_run_the_agent_is_a_plain_one(diary: Diary) -> None:
    async def look(city: str) -> str:
        diary.done.append(city)
        return "sunny"

    answer = await an_agent(diary, look).run("How is the weather?")

    assert (answer.output, diary.asked) == ("sunny", 2)


async def test_a_run_of_an_agent_has_the_same_id_in_every_attempt(diary: Diary) -> None:
    ids: list[str] = []
    agent = an_agent(diary)

    @hf.task(attempts=2, backoff="1ms")
    async def ask(run: hf.Run) -> str:
        async with durable(run):
            both = [await agent.run("first"), await agent.run("second")]
        ids.extend(answer.run_id for answer in both)
        if run.number == 1:
            raise RuntimeError("the power is gone")
        return both[0].output

    await carried(ask)

    assert ids[:2] == ids[2:]
    assert ids[0] != ids[1]


async def test_agents_may_run_side_by_side(diary: Diary) -> None:
    async def llm(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        diary.asked += 1
        (prompt,) = [part for part in messages[0].parts if isinstance(part, UserPromptPart)]
        return ModelResponse(parts=[TextPart(f"answer to {prompt.content}")])

    capability: HoldfastDurability[None] = HoldfastDurability()
    agent = Agent(FunctionModel(llm), name="weather", capabilities=[capability])

    @hf.task(attempts=2, backoff="1ms")
    async def ask_both(run: hf.Run) -> str:
        async with durable(run):
            both = await asyncio.gather(agent.run("one"), agent.run("two"))
        if run.number == 1:
            raise RuntimeError("the power is gone")
        return ", ".join(answer.output for answer in both)

    assert (await carried(ask_both), diary.asked) == ("answer to one, answer to two", 2)


async def test_an_agent_in_a_turn_is_part_of_the_turn(diary: Diary) -> None:
    agent = an_agent(diary)

    @hf.task(attempts=2, backoff="1ms")
    async def ask_twice(run: hf.Run) -> str:
        async for turn in run.turns(max=2):
            async with durable(run):
                await agent.run(f"turn {turn.number}")
            if (turn.number, run.number) == (2, 1):
                raise RuntimeError("the power is gone")
        return "done"

    await carried(ask_twice)

    assert diary.asked == 2


async def test_a_call_id_that_comes_twice_stands_for_two_calls(diary: Diary) -> None:
    async def look(city: str) -> str:
        diary.done.append(city)
        return f"{len(diary.done)}"

    # This model gives every call of a tool the same id.
    capability: HoldfastDurability[None] = HoldfastDurability()
    agent = Agent(TestModel(), name="weather", tools=[hf.read(look)], capabilities=[capability])

    @hf.task
    async def ask_twice(run: hf.Run) -> list[str]:
        async with durable(run):
            return [(await agent.run("first")).output, (await agent.run("second")).output]

    async with hf.open("memory:", tasks=[ask_twice]) as holdfast:
        answers = await (await holdfast.start(ask_twice())).result()

    assert answers == ['{"look":"1"}', '{"look":"2"}']


# --- effects


async def test_a_tool_that_declares_nothing_is_opaque(diary: Diary) -> None:
    async def send(city: str) -> str:
        diary.done.append(city)
        return "sent"

    task = a_task(an_agent(diary, send))
    async with hf.open("memory:", tasks=[task]) as holdfast:
        handle = await holdfast.start(task())
        await handle.result()
        (effect,) = await effects_of(holdfast, handle.id)

    assert (effect.name, effect.effect_class, effect.status) == ("send", "opaque", "done")


async def test_an_opaque_tool_of_unknown_outcome_waits_for_a_person_whose_result_the_model_gets(
    diary: Diary,
) -> None:
    async def send(city: str) -> str:
        diary.done.append(city)
        raise TimeoutError

    task = a_task(an_agent(diary, send))
    async with hf.open("memory:", tasks=[task]) as holdfast:
        handle = await holdfast.start(task())
        async for event in handle.watch():
            if event.kind == "effect_in_doubt":
                break
        (review,) = await holdfast.reviews()
        await holdfast.resolve(review.id, "done", result="sent by hand")
        result = await handle.result()

    assert (result, diary.done) == ("sent by hand", ["Brest"])


async def test_what_verify_finds_is_what_the_model_is_told(diary: Diary) -> None:
    def was_sent(city: str) -> hf.Happened:
        return hf.Happened(f"sent to {city}")

    @hf.verifiable(was_sent)
    async def send(city: str) -> str:
        diary.done.append(city)
        raise TimeoutError

    result = await carried(a_task(an_agent(diary, send)))

    assert (result, diary.done) == ("sent to Brest", ["Brest"])


async def test_a_tool_knows_its_idempotency_key_also_in_a_thread(diary: Diary) -> None:
    @hf.keyed("1h")
    def send(city: str) -> str:
        return hf.idempotency_key()

    assert len(await carried(a_task(an_agent(diary, send)))) == 32


async def test_a_tool_that_asks_the_model_to_try_again_is_heard_once(diary: Diary) -> None:
    async def look(city: str) -> str:
        diary.done.append(city)
        if len(diary.done) == 1:
            raise ModelRetry("which Brest?")
        return "sunny"

    result = await carried(a_task(an_agent(diary, look, calls=2), failures=1))

    assert (result, diary.told, len(diary.done)) == ("sunny", ["which Brest?", "sunny"], 2)


async def test_the_error_of_a_tool_ends_the_task_as_any_step_does(diary: Diary) -> None:
    @hf.opaque(did_not_happen=ValueError)
    async def look(city: str) -> str:
        raise ValueError(f"no such city: {city}")

    with pytest.raises(hf.TaskFailed, match="no such city"):
        await carried(a_task(an_agent(diary, look)))


async def test_a_tool_that_declares_nothing_and_raises_is_put_before_a_person(diary: Diary) -> None:
    async def book(city: str) -> str:
        raise ValueError(f"not json: {city}")

    task = a_task(an_agent(diary, book))
    async with hf.open("memory:", tasks=[task]) as holdfast:
        handle = await holdfast.start(task())
        async for event in handle.watch():
            if event.kind == "run_waited":
                break

        assert (await handle.status()).value == "needs_review"


async def test_an_agent_that_a_tool_asks_is_part_of_that_tools_step(diary: Diary) -> None:
    other_diary = Diary()
    other = an_agent(other_diary)

    @hf.idempotent
    async def look(city: str) -> str:
        return (await other.run(city)).output

    result = await carried(a_task(an_agent(diary, look), failures=1))

    assert (result, other_diary.asked) == ("nothing", 1)


async def test_a_transactional_tool_is_refused_with_the_remedy(diary: Diary) -> None:
    @hf.transactional
    def store(city: str) -> str:
        return city

    with pytest.raises(hf.TaskFailed, match="call it with run"):
        await carried(a_task(an_agent(diary, store)))


# --- limits, events, set-up


def a_limited_model(diary: Diary) -> FunctionModel:
    async def llm(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        diary.asked += 1
        if diary.asked == 1:
            raise ModelHTTPError(429, "model", retry_after=0.01)
        return ModelResponse(parts=[TextPart("here I am")])

    return FunctionModel(llm)


async def test_a_provider_that_says_when_to_come_back_is_waited_for(diary: Diary) -> None:
    capability: HoldfastDurability[None] = HoldfastDurability()
    agent = Agent(a_limited_model(diary), name="weather", capabilities=[capability])

    assert await carried(a_task(agent)) == "here I am"


async def test_the_limit_of_a_provider_may_be_raised_instead(diary: Diary) -> None:
    capability: HoldfastDurability[None] = HoldfastDurability(waits_when_limited=False)
    agent = Agent(a_limited_model(diary), name="weather", capabilities=[capability])
    seen: list[ModelHTTPError] = []

    @hf.task(attempts=1)
    async def ask(run: hf.Run) -> str:
        async with durable(run):
            try:
                return (await agent.run("hello")).output
            except ModelHTTPError as error:
                seen.append(error)
                return "no answer"

    assert (await carried(ask), seen[0].status_code) == ("no answer", 429)


async def test_events_are_told_while_the_agent_runs(diary: Diary) -> None:
    told: list[str] = []

    async def tell(_context: RunContext[None], events: AsyncIterable[AgentStreamEvent]) -> None:
        told.extend([event.event_kind async for event in events])

    async def stream(_messages: list[ModelMessage], _info: AgentInfo) -> Any:
        yield "sunny"

    capability: HoldfastDurability[None] = HoldfastDurability(event_stream_handler=tell)
    agent = Agent(FunctionModel(stream_function=stream), name="weather", capabilities=[capability])

    assert (await carried(a_task(agent)), "part_start" in told) == ("sunny", True)


def test_an_agent_needs_a_name() -> None:
    capability: HoldfastDurability[None] = HoldfastDurability()
    with pytest.raises(UserError, match="name"):
        Agent(TestModel(), capabilities=[capability])


def test_without_pydantic_ai_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai.agent", None)
    spec = importlib.util.spec_from_file_location("holdfast_without_pydantic_ai", Path(str(bridge.__file__)))
    assert spec is not None
    assert spec.loader is not None

    with pytest.raises(ImportError, match=r"pip install '\.\[pydantic-ai\]' in a checkout"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
