"""Every program in the guides for people who write tasks is executed, and does what the guide says."""

from __future__ import annotations

import asyncio
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.step_declarations import options_of
from holdfast.core.transitions import TaskStatus
from holdfast.testing import FakeClock, crash_everywhere
from tests.architecture.source import DOCS
from tests.examples.programs import EXAMPLES
from tests.payments import Payments, taking_payments

pytestmark = pytest.mark.slow

BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
# Each task on a page: what it is called with, and what it returns.
RUNS: dict[str, dict[str, tuple[tuple[Any, ...], object]]] = {
    "write-a-task": {
        "read_two": (("a.example", "b.example"), 42),
        "forgetful": ((), 600),
        "mindful": ((), 600),
        "repair": (("a",), "the page at a"),
        "read_many": ((["a", "b"],), ["the page at a", "the page at b"]),
        "shout": (("hey",), "HEY"),
        "build": ((), "foundation, walls, north wall, south wall, roof"),
        "order": (("tea",), "tea ordered, receipt: none"),
        "one_page": (("a",), 13),
        "all_pages": ((["a", "b"],), 26),
        # In a script that cannot restart itself; elsewhere it is "upgraded", as another test shows.
        "upgrade": (("a",), "not upgraded"),
        "careful": (("hey",), "HEY"),
        "with_cleanup": (("a",), "the page at a"),
        "measure": ((["a", "b"],), 26),
        "ask_agent": (("hey",), '{"fetch":"the page at a"}'),
    },
    "effects": {
        "settle": (("Ada",), "mailed to Ada"),
        "invite_all": ((["Ada", "Mary"],), ["invited Ada", "invited Mary"]),
        "book_twice": (("Ada",), 30),
        "keep": (("note.txt", "hello"), 5),
        "pay_rent": (("Ada",), "pay-1"),
    },
    "flows": {
        "build": (("app",), {"path": "dist/app"}),
        "check": (("dist/app",), True),
        "publish": (("dist/app", "new"), "dist/app: new"),
        "write_notes": ((), "better tides"),
    },
}
TASKS = [(page, name) for page, tasks in RUNS.items() for name in tasks]


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / "guides" / f"{page}.md").read_text(encoding="utf-8")
    return [block for given, block in BLOCK.findall(text) if given == language]


@pytest.fixture(autouse=True)
def place(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(quick_path)
    return quick_path


def as_module(page: str) -> ModuleType:
    """All programs of a page, one after another, as one module."""
    module = ModuleType(f"guide_{page}")
    sys.modules[module.__name__] = module
    exec(compile("\n".join(blocks(page, "python")), page, "exec"), vars(module))
    return module


@pytest.fixture
def payments() -> Iterator[Payments]:
    with taking_payments() as server:
        yield server


@pytest.fixture
def pages(payments: Payments) -> Iterator[dict[str, ModuleType]]:
    made = {page: as_module(page) for page in RUNS}
    vars(made["effects"])["BANK"] = payments.bank
    yield made
    for module in made.values():
        del sys.modules[module.__name__]


def tasks_of(module: ModuleType) -> dict[str, hf.TaskDefinition[..., Any]]:
    return {name: one for name, one in vars(module).items() if isinstance(one, hf.TaskDefinition)}


def test_every_task_of_a_guide_is_run(pages: dict[str, ModuleType]) -> None:
    assert {page: set(tasks_of(module)) for page, module in pages.items()} == {
        page: set(tasks) for page, tasks in RUNS.items()
    }


@pytest.mark.parametrize(("page", "name"), TASKS, ids=[name for _, name in TASKS])
def test_a_task_of_a_guide_returns_what_it_says(page: str, name: str, pages: dict[str, ModuleType]) -> None:
    arguments, expected = RUNS[page][name]
    tasks = tasks_of(pages[page])
    result = asyncio.run(carried(tasks[name](*arguments), list(tasks.values())))

    assert result == expected


async def carried(call: hf.Call[Any], tasks: list[hf.TaskDefinition[..., Any]]) -> Any:
    """Its result, as quickly as time can be made to pass; a person says yes to everything."""
    clock = FakeClock()
    async with hf.open("memory:", tasks=tasks, clock=clock) as holdfast:
        handle = await holdfast.start(call)
        async for event in handle.watch():
            if event.kind == "run_waited":
                for question in await holdfast.questions():
                    await holdfast.answer(question.id, "yes")
                    break
                else:
                    clock.advance(days=31)
        return await handle.result()


def test_the_whole_program_of_the_guide_runs_twice(
    pages: dict[str, ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        asyncio.run(pages["write-a-task"].main())

    assert capsys.readouterr().out.splitlines() == ["42", "42"]


def test_the_test_of_the_guide_finds_what_a_restart_forgets(pages: dict[str, ModuleType]) -> None:
    module = pages["write-a-task"]
    asyncio.run(module.test_my_task_survives())

    with pytest.raises(AssertionError, match="Local variables"):
        asyncio.run(crash_everywhere(module.forgetful))


def test_the_restart_that_the_guide_asks_for_is_had_wherever_the_task_is_killed(
    pages: dict[str, ModuleType],
) -> None:
    report = asyncio.run(crash_everywhere(pages["write-a-task"].upgrade, "a"))

    assert report.result == "upgraded"


def test_the_waits_of_the_guide_take_an_answer_and_a_message(pages: dict[str, ModuleType]) -> None:
    async def order() -> str:
        clock, task = FakeClock(), tasks_of(pages["write-a-task"])["order"]
        async with hf.open("memory:", tasks=[task], clock=clock) as holdfast:
            handle = await holdfast.start(task("tea"))
            await handle.send("receipt", "no. 7")
            async for event in handle.watch():
                if event.kind == "run_waited":
                    clock.advance(hours=9)
                if event.kind == "question_asked":
                    await holdfast.answer(event.subject_id, "yes")
            result: str = await handle.result()
            return result

    assert asyncio.run(order()) == "tea ordered, receipt: no. 7"


def test_old_arguments_reach_the_new_task_of_the_guide(pages: dict[str, ModuleType]) -> None:
    measure = tasks_of(pages["write-a-task"])["measure"]

    assert measure.arguments_of(b'{"url": "a"}') == ({"urls": ["a"]}, 1)


def test_the_review_of_the_guide_settles_an_effect_in_doubt(
    pages: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = pages["effects"]

    async def lost(to: str) -> str:
        raise TimeoutError(to)

    monkeypatch.setattr(module, "invite", hf.tool(lost, effect=options_of(module.invite).effect))

    async def review() -> list[str]:
        async with hf.open("memory:", tasks=[module.invite_all]) as holdfast:
            handle = await holdfast.start(module.invite_all(["Ada"]))
            async for event in handle.watch():
                if event.kind == "run_waited":
                    status = await handle.status()
                    await module.decide_all(holdfast)
            assert status is TaskStatus.NEEDS_REVIEW
            result: list[str] = await handle.result()
            return result

    assert asyncio.run(review()) == ["invited by hand"]


@pytest.mark.parametrize(
    ("how", "status", "taken"),
    [
        ("resets", TaskStatus.NEEDS_REVIEW, 1),
        ("stalls", TaskStatus.NEEDS_REVIEW, 1),
        ("answers nonsense", TaskStatus.NEEDS_REVIEW, 1),
        ("answers 500", TaskStatus.NEEDS_REVIEW, 1),
        ("declines", TaskStatus.FAILED, 0),
    ],
)
def test_the_payment_of_the_guide_is_made_once_however_the_bank_answers(
    pages: dict[str, ModuleType],
    payments: Payments,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    status: TaskStatus,
    taken: int,
) -> None:
    module, payments.how = pages["effects"], how
    client = functools.partial(module.httpx.AsyncClient, timeout=0.2)
    monkeypatch.setattr(module.httpx, "AsyncClient", lambda **_: client())  # its ten seconds, sooner

    async def pay() -> TaskStatus:
        clock = FakeClock()
        async with hf.open("memory:", tasks=[module.pay_rent], clock=clock) as holdfast:
            handle = await holdfast.start(module.pay_rent("Ada"))
            async for event in handle.watch():
                if event.kind == "run_retried":
                    clock.advance(hours=1)
                if event.kind == "run_waited":
                    break
            return await handle.status()

    assert asyncio.run(pay()) is status
    assert len(payments.taken) == taken


@pytest.mark.parametrize("page", RUNS)
def test_every_block_of_a_guide_has_a_language_that_is_tested(page: str) -> None:
    text = (DOCS / "guides" / f"{page}.md").read_text(encoding="utf-8")

    assert {language for language, _ in BLOCK.findall(text)} <= {"python", "diff", "yaml", ""}


def test_the_flows_of_the_guide_run_from_python_and_from_the_settings(
    pages: dict[str, ModuleType], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = pages["flows"]
    (place / "config").mkdir(mode=0o700)
    (place / "config" / "workflows.yaml").write_text("".join(blocks("flows", "yaml")))
    (place / "shop").mkdir()
    (place / "shop" / "tasks.py").write_text("\n".join(blocks("flows", "python")))
    monkeypatch.syspath_prepend(str(place))
    release = hf.read_flows(place)["release"]

    async def run() -> tuple[str, hf.Flow, dict[str, Any]]:
        tasks = list(tasks_of(module).values())
        async with hf.open("memory:", tasks=tasks) as holdfast:
            shipped = await module.ship(holdfast)
            trip = await module.plan_a_trip(holdfast)
            handle = await holdfast.start_flow(release, key="2026-01")
            return shipped, trip, await handle.results()

    shipped, trip, results = asyncio.run(run())

    assert shipped == "dist/app: better tides"
    assert (trip.status.value, trip.revision) == ("succeeded", 5)
    assert results["publish"] == "dist/app: A better release."
    report = asyncio.run(crash_everywhere(module.release, tasks=list(tasks_of(module).values())))
    assert report.status.value == "succeeded"


def test_the_commands_of_a_guide_exist() -> None:
    from holdfast.cli.main import program
    from tests.architecture.test_guides import commands

    known = set(commands(program, "holdfast"))
    shown = [line for page in RUNS for block in blocks(page, "") for line in block.splitlines()]

    assert [line for line in shown if not any(f"{line} ".startswith(f"{one} ") for one in known)] == []


def test_a_guide_links_every_example() -> None:
    linked = "".join((DOCS / "guides" / f"{page}.md").read_text(encoding="utf-8") for page in RUNS)

    assert [path.name for path in EXAMPLES.rglob("*.py") if path.name not in linked] == []
