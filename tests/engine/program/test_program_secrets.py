"""What looks like a secret in a program's calls, plans and choices: it works, and is not stored readable."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast as hf
from holdfast.testing import Crashed
from holdfast.tools import write_file
from tests.engine.program.sample_program import add
from tests.engine.stage import Stage


@pytest.mark.parametrize("how", ["tool", "step"])
async def test_ids_of_calls_that_look_like_secrets_are_told_apart_and_not_stored(
    quick: Stage, how: str
) -> None:
    async def call(run: hf.Run, number: int, own: str) -> int:
        if how == "tool":
            return await run.tool(add, {"one": number}, id=own)
        return await run.step(hf.step(add, id=own), one=number)

    @hf.task
    async def three_calls(run: hf.Run) -> list[int]:
        return [await call(run, number, f"ghp_{letter * 36}") for number, letter in enumerate("abc")]

    await quick.open(three_calls)
    handle = await quick.start(three_calls())
    await quick.settle()

    assert await handle.result() == [0, 1, 2]
    steps = await quick.store.read(lambda tx: tx.journal.steps(handle.id))
    assert len({step.occurrence for step in steps}) == 3
    assert all(step.occurrence.startswith("id:[redacted:") for step in steps)


@pytest.mark.parametrize("item", ["set password=hunter2!", hf.PlanItem(id="token=abc12345", title="log in")])
async def test_a_plan_item_comes_back_as_it_was_and_its_id_is_stored_as_a_name(
    quick: Stage, item: str | hf.PlanItem
) -> None:
    @hf.task
    async def planned(run: hf.Run) -> list[str]:
        return [turn.title async for turn in run.plan([item, "then rest"])]

    await quick.open(planned)
    handle = await quick.start(planned())
    await quick.settle()

    title = item if isinstance(item, str) else item.title
    assert await handle.result() == [title, "then rest"]
    plan = await quick.store.read(lambda tx: tx.journal.plans([handle.id])[handle.id][1])
    assert [one.title for one in plan.items] == [title, "then rest"]
    assert "hunter2" not in plan.items[0].id
    assert "abc12345" not in plan.items[0].id


async def test_a_plan_that_is_too_large_is_refused_and_the_error_names_the_limit(quick: Stage) -> None:
    @hf.task
    async def planned(run: hf.Run) -> None:
        run.plan([hf.PlanItem(id="a", title="x" * 1_048_576), "then rest"])

    await quick.open(planned)
    handle = await quick.start(planned())
    await quick.settle()

    with pytest.raises(hf.TaskFailed, match="the limit is 1,048,576 "):
        await handle.result()


async def test_a_checkpoint_shows_a_plan_redacted_and_the_program_is_told_its_own(stage: Stage) -> None:
    @hf.task
    async def planned(run: hf.Run) -> list[str]:
        titles = run.list("titles", of=str)
        async for turn in run.plan([hf.PlanItem(id="a", title="password: hunter2!"), "rest"]):
            titles.append(turn.title)
            if turn.id == "rest":
                await run.requires_restart("a new driver was installed")
        return list(titles)

    await stage.open(planned)
    handle = await stage.start(planned())
    await stage.settle()
    await stage.open(planned)
    await stage.settle()

    assert await stage.result(handle) == ["password: hunter2!", "rest"]
    (checkpoint,) = stage.store.read_now(lambda tx: tx.checkpoints.page())
    assert b'"title":"password: [redacted:assignment]"' in checkpoint.document
    resumed = stage.executions[-1].run.resumed
    assert resumed is not None
    assert resumed.plan is not None
    assert [item.title for item in resumed.plan.items] == ["password: hunter2!", "rest"]


async def test_a_file_with_a_password_is_written_right_by_an_agent_that_was_interrupted(
    stage: Stage, tmp_path: Path
) -> None:
    settings = f"user: ada\npassword: hunter2\ntoken: ghp_{'a1' * 18}\nurl: https://ada:pw9@host/\n"
    path = tmp_path / "settings.yaml"
    calls: list[int] = []

    async def think() -> dict[str, str]:
        """What a model wants to be done."""
        return {"path": str(path), "content": settings}

    async def die_once() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise Crashed

    @hf.task
    async def coding(run: hf.Run) -> str:
        wanted: hf.DurableValue[dict[str, str]] = run.value("wanted", {}, of=dict[str, str])
        async for turn in run.turns(max=2):
            if turn.number == 1:
                wanted.set(await turn.step(think))
                continue
            await turn.step(die_once)
            await turn.tool(write_file, wanted.get())
        return wanted.get()["content"]

    await stage.open(coding)
    handle = await stage.start(coding())
    await stage.settle()
    await stage.open(coding)
    await stage.settle()

    assert await stage.result(handle) == settings
    assert path.read_text() == settings
    assert len(calls) == 2


async def test_who_was_shown_a_choice_redacted_may_say_it_so(quick: Stage) -> None:
    @hf.task
    async def asking(run: hf.Run) -> str:
        return str(
            await run.ask("which?", ["password=abc123!", "none", "password=xyz789!", "ghp_" + "a1" * 18])
        )

    await quick.open(asking)
    handle = await quick.start(asking())
    await quick.settle()
    (question,) = await quick.holdfast.questions()
    with pytest.raises(hf.BadInput):  # it could be either
        await quick.holdfast.answer(question.id, "password=[redacted:assignment]")
    await quick.holdfast.answer(question.id, "[redacted:github]")
    await quick.settle()

    assert await handle.result() == "ghp_" + "a1" * 18


async def test_an_answer_may_be_a_choice_that_looks_like_a_secret(quick: Stage) -> None:
    @hf.task
    async def asking(run: hf.Run) -> str:
        return str(await run.ask("which? password=hunter2!", ["password=abc123!", "none"]))

    await quick.open(asking)
    handle = await quick.start(asking())
    await quick.settle()
    (question,) = await quick.holdfast.questions()
    with pytest.raises(hf.BadInput) as refused:
        await quick.holdfast.answer(question.id, "other")
    await quick.holdfast.answer(question.id, "password=abc123!")
    await quick.settle()

    assert await handle.result() == "password=abc123!"
    assert "hunter2" not in question.question
    assert "abc123" not in str(refused.value)


async def test_what_is_left_of_a_step_of_a_finished_turn_is_redacted_before_it_is_cut(quick: Stage) -> None:
    @hf.task
    async def turning(run: hf.Run) -> None:
        async for turn in run.turns(max=1):
            await turn.step(say_a_secret)

    def say_a_secret() -> list[str]:
        return ["x" * 90, "--api-key", "hunter2", f"ghp_{'0aZ9' * 9}"]

    await quick.open(turning)
    handle = await quick.start(turning())
    await quick.settle()

    turns = await quick.store.read(lambda tx: tx.turns.finished(handle.id))
    (preview,) = [step.preview for turn in turns for step in turn.steps]
    assert "hunter2" not in preview
    assert "ghp_" not in preview
