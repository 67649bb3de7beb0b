"""Every example runs, prints what it should, and does nothing twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from examples import approval
from examples.loop import before
from tests.examples.loop_diff import GUIDE, SHOWN, difference
from tests.examples.programs import ALL, EXAMPLES, Example

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def place(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Examples write where they are started."""
    monkeypatch.chdir(quick_path)
    return quick_path


def run_once(example: Example) -> None:
    asyncio.run(example.module.main(*example.arguments))


def test_every_example_is_tested() -> None:
    programs = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py")}

    assert programs == {f"{example.name}.py" for example in ALL} | {"loop/before.py"}


@pytest.mark.parametrize("example", ALL, ids=lambda example: example.name)
def test_an_example_prints_its_steps_and_its_result(
    example: Example, capsys: pytest.CaptureFixture[str]
) -> None:
    run_once(example)
    *steps, result = capsys.readouterr().out.splitlines()

    assert (sorted(steps), result) == (sorted(example.steps), example.result)


@pytest.mark.parametrize("example", ALL, ids=lambda example: example.name)
def test_an_example_that_is_started_again_only_tells_its_result(
    example: Example, capsys: pytest.CaptureFixture[str], place: Path
) -> None:
    run_once(example)
    capsys.readouterr()
    run_once(example)

    assert capsys.readouterr().out.splitlines() == [example.result]
    assert {name: len((place / name).read_text().splitlines()) for name in example.world} == example.world


@pytest.mark.parametrize("example", ALL, ids=lambda example: example.name)
def test_an_example_says_how_to_run_it(example: Example) -> None:
    assert f"examples/{example.name}.py" in (example.module.__doc__ or "")


# --- a person's approval


def test_the_approval_asks_and_ends_and_goes_on_with_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(approval.main())
    asked = capsys.readouterr().out.splitlines()
    asyncio.run(approval.main("no"))

    assert asked[-1].startswith("Release 1.2?")
    assert capsys.readouterr().out.splitlines() == ["1.2 was not released"]


# --- the loop, before and after


def test_a_loop_becomes_durable_in_fewer_than_ten_changed_lines() -> None:
    lines = [line for line in difference().splitlines() if line[1:].strip()]

    for sign in "+-":
        assert 0 < len([line for line in lines if line.startswith(sign)]) < 10


def test_the_loop_does_the_same_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(before.main())
    after = next(example for example in ALL if example.name == "loop/after")

    assert capsys.readouterr().out.splitlines() == [*after.steps, after.result]


def test_the_guide_shows_the_difference_as_it_is() -> None:
    shown = SHOWN.findall(GUIDE.read_text(encoding="utf-8"))

    assert shown == [difference()], "run `python -m tests.examples.loop_diff`"
