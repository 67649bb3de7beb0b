"""The commands in messages have the --home and --store of the call that printed them."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.commands import with_place
from tests.doors.calls import Run

PLACE = " --home X"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "no task 'x'; run `holdfast tasks list` to see",
            "no task 'x'; run `holdfast tasks list --home X` to see",
        ),
        ("to answer: holdfast questions answer q 1", "to answer: holdfast questions answer q 1 --home X"),
        ("a: holdfast a b; c: holdfast d", "a: holdfast a b --home X; c: holdfast d --home X"),
        ("x (holdfast tasks show t)", "x (holdfast tasks show t --home X)"),
        (
            "x: holdfast worker MODULE (the module of y)",
            "x: holdfast worker MODULE --home X (the module of y)",
        ),
        ("fix: holdfast store verify, then restore", "fix: holdfast store verify --home X, then restore"),
        ("then: holdfast a b && holdfast c", "then: holdfast a b --home X && holdfast c --home X"),
        ("add one: `holdfast cron add x -- du -s`", "add one: `holdfast cron add x --home X -- du -s`"),
        ("create one: `holdfast campaign create --help`", "create one: `holdfast campaign create --help`"),
        ("kept: holdfast --home /y tasks list", "kept: holdfast --home /y tasks list"),
        ("holdfast is a program", "holdfast is a program"),
    ],
)
def test_each_command_of_a_message_gets_the_place_once(text: str, shown: str) -> None:
    assert with_place(text, PLACE) == shown
    assert with_place(shown, PLACE) == shown
    assert with_place(text, "") == text


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["campaign", "show", "x"], "holdfast campaign list"),
        (["tasks", "show", "x"], "holdfast tasks list"),
        (["gateway", "restart"], "holdfast up"),
        (["status"], "holdfast up"),
        (["agents", "list"], "holdfast campaign create"),
    ],
)
def test_a_command_to_copy_has_the_home_of_the_call(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], command: str
) -> None:
    monkeypatch.delenv("HOLDFAST_HOME")
    home = str(tmp_path / "home")
    assert run("store", "migrate", "--home", home).status == 0

    found = run(*arguments, "--home", home)

    assert f"{command} --home {home}" in found.out + found.err
    if found.status:
        error = run(*arguments, "--home", home, "--json").error
        assert f"{command} --home {home}" in error["message"]


def test_a_command_to_copy_has_the_ledger_of_the_call_without_its_password(run: Run, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'other.db'}"
    assert run("store", "migrate", "--store", store).status == 0

    assert f"`holdfast tasks list --store {store}`" in run("tasks", "show", "x", "--store", store).err
    wrong = run("tasks", "show", "x", "--store", "nonsense://ada:hunter22@x/y")
    assert wrong.status != 0
    assert "hunter22" not in wrong.err


@pytest.mark.parametrize(
    ("arguments", "noun", "command"),
    [
        (["tasks", "flow", "show", "x"], "flow 'x'", "tasks flow list"),
        (["reviews", "show", "x"], "review 'x'", "reviews list"),
        (["questions", "answer", "x", "yes"], "question 'x'", "questions list"),
        (["deliveries", "retry", "x"], "delivery 'x'", "deliveries list"),
        (["wakes", "cancel", "x"], "wake 'x'", "wakes list"),
        (["checkpoints", "show", "x"], "checkpoint 'x'", "checkpoints list"),
        (["checkpoints", "restore", "x"], "checkpoint 'x'", "checkpoints list --campaigns"),
        (
            ["checkpoints", "restore", "checkpoint-x"],
            "checkpoint 'checkpoint-x'",
            "checkpoints list --campaigns",
        ),
    ],
)
def test_what_is_not_found_is_quoted_as_it_was_typed_with_the_list_that_has_it(
    run: Run, arguments: list[str], noun: str, command: str
) -> None:
    assert run("store", "migrate").status == 0

    found = run(*arguments)

    assert found.status == 4
    assert f"no {noun}; run `holdfast {command}` to see what there is" in found.err
    assert f"no {noun}; " in run(*arguments, "--json").error["message"]
