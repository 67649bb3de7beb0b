"""One vocabulary per door: the protocol's words in tasks.*, ours everywhere else, and camelCase in both."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, get_args, get_type_hints

import click
import msgspec
import pytest

from holdfast.api.method_kinds import Method
from holdfast.api.methods import METHODS
from holdfast.api.openclaw_methods import OPENCLAW_METHODS
from holdfast.api.params import Params
from holdfast.api.sessions import SpawnAsked
from holdfast.cli.main import program
from holdfast.cli.task_list import RUNTIMES, STATUSES
from holdfast.core.checkpoint import CheckpointDocument
from holdfast.core.task import NotifyPolicy, RuntimeName
from holdfast.core.transitions import TaskStatus
from holdfast.core.wake_contract import ResumeStep
from holdfast.engine.campaigns.documents import ContextDocument, PhaseDocument
from holdfast.engine.campaigns.recovery_document import RecoveryDocument
from tests.doors.json_page import ANSWERS

# In the words of OpenClaw's protocol.
THEIRS = {name for name in METHODS if name.startswith("tasks.")} | {"gateway.restart.preflight"}
THEIRS |= {method.name for method in OPENCLAW_METHODS}
OURS = sorted(set(METHODS) - THEIRS)
# Words of the protocol, and names that we gave up, which none of our own methods uses.
NOT_OURS = {
    "cursor",
    "nextCursor",
    "before",
    "nextPage",
    "timeoutMs",
    "ownerKey",
    "completed",
}
# A feed is read on from a position, which stays valid while the feed grows; everything else is paged.
FEEDS = {"events.list": "nextPosition", "sessions.transcript": "nextAfter"}
CAMEL = re.compile(r"[a-z][a-zA-Z0-9]*")


def structs_in(hint: Any, seen: set[type] | None = None) -> Iterator[type[msgspec.Struct]]:
    """Every struct inside a type, itself first."""
    # A checkpoint holds its document as it is stored, which has a published schema of its own; a packet has
    # the words of the contract for long tasks, so that an agent can send the one that it has read.
    # The two documents of a campaign's phase keep the spelling of the files that they are compared with.
    foreign: set[type] = {
        CheckpointDocument,
        ContextDocument,
        PhaseDocument,
        RecoveryDocument,
        SpawnAsked,
        ResumeStep,
    }
    seen = foreign if seen is None else seen
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint not in seen:
        seen.add(hint)
        yield hint
        for inner in get_type_hints(hint).values():
            yield from structs_in(inner, seen)
    for inner in get_args(hint):
        yield from structs_in(inner, seen)


def names_in(struct: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct)}


def words_of(method: Method) -> set[str]:
    """Every name that a caller writes or reads."""
    return {
        name for top in (method.params, method.answer) for one in structs_in(top) for name in names_in(one)
    }


@pytest.mark.parametrize("name", METHODS)
def test_every_name_on_the_wire_is_in_camel_case(name: str) -> None:
    assert {word for word in words_of(METHODS[name]) if not CAMEL.fullmatch(word)} == set()


@pytest.mark.parametrize("command", ANSWERS)
def test_every_name_in_the_json_of_a_command_is_in_camel_case(command: str) -> None:
    names = {name for one in structs_in(ANSWERS[command]) for name in names_in(one)}

    assert {name for name in names if not CAMEL.fullmatch(name)} == set()


@pytest.mark.parametrize("name", OURS)
def test_our_own_methods_use_none_of_the_protocols_words(name: str) -> None:
    assert words_of(METHODS[name]) & NOT_OURS == set()


@pytest.mark.parametrize("name", OURS)
def test_our_own_lists_are_paged_in_one_way(name: str) -> None:
    method = METHODS[name]
    asked, answered = names_in(method.params), names_in(method.answer)

    if name in FEEDS:
        assert "after" in asked
        assert FEEDS[name] in answered
    else:
        assert "after" not in asked
        assert ("pageToken" in asked) == ("nextPageToken" in answered)
    if "pageToken" in asked:
        assert "limit" in asked


def test_the_protocols_lists_are_paged_in_its_way() -> None:
    method = METHODS["tasks.list"]

    assert "cursor" in names_in(method.params)
    assert "nextCursor" in names_in(method.answer)


def literals_of(params: type[Params], field: str) -> set[str]:
    found: set[str] = set()

    def walk(hint: Any) -> None:
        if isinstance(hint, type) and issubclass(hint, StrEnum):
            found.update(one.value for one in hint)
        for inner in get_args(hint):
            found.add(inner) if isinstance(inner, str) else walk(inner)

    walk(get_type_hints(params, include_extras=False)[field])
    return found


OUR_WORDS: dict[str, set[str]] = {
    "runtime": {one.value for one in RuntimeName},
    "notify": {one.value for one in NotifyPolicy},
}


@pytest.mark.parametrize("name", OURS)
def test_our_own_methods_take_our_statuses_runtimes_and_policies(name: str) -> None:
    params = METHODS[name].params
    fields = {field.name for field in msgspec.structs.fields(params)}

    for field in fields & set(OUR_WORDS):
        assert literals_of(params, field) <= OUR_WORDS[field]
    if name.startswith(("ledger.", "producer.")) and "status" in fields:
        assert literals_of(params, "status") <= {one.value for one in TaskStatus}


def test_the_command_line_takes_the_same_words() -> None:
    assert set(STATUSES) == {one.value for one in TaskStatus}
    assert set(RUNTIMES) == {one.value for one in RuntimeName}


def commands(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield path.strip(), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from commands(inner, f"{path} {name}")


def test_every_list_of_the_command_line_is_paged_by_page() -> None:
    options = {
        name: {option for one in command.params for option in one.opts} for name, command in commands(program)
    }

    paged = {name for name, given in options.items() if "--page" in given}
    assert {name for name, given in options.items() if "--before" in given} == set()
    assert {name for name, given in options.items() if "--after" in given} == {"events"}
    assert paged == {
        name
        for name, answer in ((name.partition(" --")[0], one) for name, one in ANSWERS.items())
        if "nextPageToken" in names_in(answer)
        for name in [" ".join(word for word in name.split() if word.islower())]
    }
