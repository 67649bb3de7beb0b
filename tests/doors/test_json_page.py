"""The guide to the JSON of the commands is complete and up to date."""

from __future__ import annotations

import click

from holdfast.cli.main import program
from tests.doors.json_page import ANSWERS, PAGE, page


def test_the_page_is_that_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.doors.json_page`"


def test_the_page_names_every_command() -> None:
    named = {
        " ".join(word for word in command.split() if word.islower() and word[0] != "-") for command in ANSWERS
    }

    assert named == set(commands(program, ""))


def commands(command: click.Command, path: str) -> list[str]:
    if not isinstance(command, click.Group):
        return [path.strip()]
    context = click.Context(command)
    found = []
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        found += commands(inner, f"{path} {name}")
    return found
