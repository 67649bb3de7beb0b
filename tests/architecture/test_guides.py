"""The guides and decisions say what the code does, in the form that we agreed on."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

from holdfast.cli.errors import exit_status
from holdfast.cli.main import program
from holdfast.core import errors
from holdfast.core.errors import HoldfastError
from holdfast.core.events import EventKind
from holdfast.views.events import EventView
from tests.architecture.source import DOCS, ROOT, modules, tree_of

OBSERVE = DOCS / "guides" / "observe.md"
OPERATE = DOCS / "guides" / "operate.md"
README = ROOT / "README.md"
COMMANDS = DOCS / "commands.md"
DECISIONS = sorted((DOCS / "adr").glob("*.md"))
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
TABLE_ROW = re.compile(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)#]+)(?:#[^)]*)?\)")
NOT_EMITTED = "not emitted yet"
# What every event has; the rest of the keywords are its facts.
EVENT_FIELDS = {"at", "task_id"}
NOT_PROSE = re.compile(r"```.*?```|<!-- begin (\w+) -->.*?<!-- end \1 -->|^\|.*?$", re.DOTALL | re.MULTILINE)
TWO_SENTENCES = re.compile(r"(?<!e\.g)(?<!i\.e)(?<!\d)[.!?][`*_\"')]* +[A-Z]")
SECTIONS = ["What we faced", "What we chose", "What we gave up", "What would change our mind"]


def documented_kinds() -> dict[str, str]:
    page = OBSERVE.read_text(encoding="utf-8").split("## Kinds")[1]
    return {kind: facts for kind, _, facts in TABLE_ROW.findall(page)}


def emitted() -> Iterator[tuple[str, set[str]]]:
    """Each call that names a kind, with the facts it gives."""
    for module in modules():
        for node in ast.walk(tree_of(module.path)):
            if isinstance(node, ast.Call):
                for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                    if kind := kind_in(argument):
                        yield kind, {keyword.arg for keyword in node.keywords if keyword.arg} - EVENT_FIELDS


def kind_in(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "EventKind":
        return str(EventKind[node.attr].value)
    return None


# --- events


def test_the_guide_lists_every_kind_of_event_in_the_order_of_the_code() -> None:
    assert list(documented_kinds()) == [kind.value for kind in EventKind]


def test_the_guide_lists_the_facts_that_are_emitted() -> None:
    facts: dict[str, set[str]] = {}
    for kind, given in emitted():
        facts[kind] = facts.get(kind, set()) | given
    listed = {
        kind: None if text == NOT_EMITTED else set(re.findall(r"`(\w+)`", text))
        for kind, text in documented_kinds().items()
    }

    assert listed == {kind.value: facts.get(kind.value) for kind in EventKind}


def test_the_guide_lists_every_field_of_an_event() -> None:
    page = OBSERVE.read_text(encoding="utf-8").split("## What an event holds")[1].split("## Kinds")[0]

    shown = [field.encode_name for field in msgspec.structs.fields(EventView)]
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == shown


# --- commands and errors


def commands(command: click.Command, path: str) -> Iterator[str]:
    """Every command that does something, as it is typed."""
    if not isinstance(command, click.Group):
        yield path
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from commands(inner, f"{path} {name}")


@pytest.mark.parametrize("page", [OPERATE, COMMANDS], ids=lambda path: path.name)
def test_every_command_is_in_the_guide_and_in_the_list_of_commands(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = [one for one in commands(program, "holdfast") if not re.search(rf"{one}\b", text)]

    assert missing == []


def nouns() -> set[str]:
    """All that a NotFound may name."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    return set(re.findall(r"""(?:NotFound\(|\bnoun = |resolve\(self\._tx, )"(\w+)\"""", source))


def test_a_user_that_names_what_is_not_there_is_told_a_command_that_is() -> None:
    there = set(commands(program, "holdfast"))
    named = {noun: re.findall(r"`(.+?)`", str(errors.NotFound(noun, "x"))) for noun in nouns()}

    assert {"task", "delivery", "setting"} <= set(named)
    assert {noun: told for noun, told in named.items() if not set(told) <= there} == {}


def all_errors() -> set[type[HoldfastError]]:
    return {one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, HoldfastError)}


def test_the_guide_lists_every_error_code_with_its_exit_status() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (\d) \|", OPERATE.read_text(encoding="utf-8"), re.MULTILINE)
    actual = {
        (kind.code, str(exit_status(kind.__new__(kind))))
        for kind in all_errors()
        if kind is not HoldfastError
    }

    assert sorted(listed) == sorted(actual)


def test_the_family_tree_of_errors_draws_every_error_under_its_parent() -> None:
    drawn: dict[str, str] = {}
    parents = ["HoldfastError"]
    for indent, name in re.findall(r"^([│ ]*)[├└]── (\w+)", errors.__doc__ or "", re.MULTILINE):
        depth = len(indent) // 4 + 1
        parents[depth:] = [name]
        drawn[name] = parents[depth - 1]

    assert drawn == {kind.__name__: kind.__base__.__name__ for kind in all_errors() - {HoldfastError}}  # type: ignore[union-attr]


# --- the README


def test_the_readme_begins_with_a_picture_of_the_dashboard() -> None:
    picture = re.search(r"!\[[^\]]+\]\((.+?)\)", README.read_text(encoding="utf-8").split("\n## ")[0])

    assert picture is not None
    assert (ROOT / picture[1]).read_bytes().startswith(b"\x89PNG")


def test_the_program_in_the_readme_runs_and_prints_what_the_readme_says(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    printed = re.findall(r"print\(.*# (.+)$", blocks[0], re.MULTILINE)
    # Twice: the second run finds the work of the first.
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", blocks[0]],
            env={"HOLDFAST_HOME": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

        assert (done.stderr, done.stdout.splitlines()) == ("", printed)


# --- decisions


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [path.name[:5] for path in DECISIONS] == [f"{n:04}-" for n in range(1, len(DECISIONS) + 1)]


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_is_one_page_in_four_parts_under_its_number(path: Path) -> None:
    page = path.read_text(encoding="utf-8")

    assert re.match(rf"# {path.name[:4]} \S", page)
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == SECTIONS
    assert len(page.splitlines()) <= 60


# --- prose


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_prose_has_one_sentence_per_line(path: Path) -> None:
    prose = NOT_PROSE.sub("", path.read_text(encoding="utf-8"))
    crowded = [line for line in prose.splitlines() if TWO_SENTENCES.search(line)]

    assert crowded == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_between_pages_leads_somewhere(path: Path) -> None:
    links = [link for link in LINK.findall(path.read_text(encoding="utf-8")) if "://" not in link]
    dead = [link for link in links if not (path.parent / link).exists()]

    assert dead == []
