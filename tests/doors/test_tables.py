"""Every table is readable at 80 and at 120 columns: short ids, whole words, and what matters stays."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from holdfast.cli import output
from holdfast.cli.main import program
from holdfast.cli.tables import cut, lay_out, shorten_ids, width_of, wrapped
from tests.doors.calls import Opens, Run
from tests.doors.listings import LISTINGS, arguments_of, full_ledger, width
from tests.doors.test_json_page import commands

pytestmark = pytest.mark.slow

LONG = {
    "words": "counting the lobsters of the northern harbour before the tide turns again",
    "wide": "数える 灯台の海老を全部数えてください 夜明けまでに終わらせること 🦞🦞🦞 完了",
    "joined": "family 👨‍👩‍👧‍👦 and flags 🇩🇪🇫🇷 and é accents ñ over several more words than fit",
    "one word": "https://example.org/" + "very-long-path-without-a-space/" * 4,
}


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> object:
    def terminal(columns: int) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setattr(output, "is_terminal", lambda _stream: True)

    return terminal


@pytest.mark.parametrize("text", LONG)
@pytest.mark.parametrize("columns", [80, 120])
def test_every_listing_fits_its_terminal(
    run: Run, ledger: Opens, home: Path, at: object, columns: int, text: str
) -> None:
    with ledger() as store:
        ids = full_ledger(store, LONG[text])
    (home / "holdfast.toml").write_text('[agents.ada]\ncommand = ["python", "-m", "a.long.module.name"]\n')
    at(columns)  # type: ignore[operator]

    for name in LISTINGS:
        called = run(*arguments_of(name, *ids))
        assert called.out or called.err, name
        for line in called.out.splitlines():
            is_single = (
                " " not in line.strip() or "holdfast " in line or width(line.split()[-1]) > columns / 2
            )
            assert width(line) <= columns or is_single, (name, width(line), line)


@pytest.mark.parametrize("columns", [80, 120])
def test_no_table_cuts_a_word_and_the_goal_is_the_last_to_go(
    run: Run, ledger: Opens, at: object, columns: int
) -> None:
    with ledger() as store:
        ids = full_ledger(store, LONG["words"])
    at(columns)  # type: ignore[operator]
    words = set(LONG["words"].split())

    for name in LISTINGS:
        called = run(*arguments_of(name, *ids))
        for part in re.findall(r"([a-z]{3,})…", called.out):
            assert not any(word.startswith(part) and word != part for word in words), (name, part)
    listed = run("tasks")
    assert "GOAL" in listed.out
    assert "counting the lobsters of" in listed.out
    assert ("OWNER" in listed.out) == (columns > 100) or "OWNER" in listed.err


def test_a_short_id_is_a_unique_prefix_that_every_command_takes(run: Run, ledger: Opens, at: object) -> None:
    with ledger() as store:
        full_ledger(store, "x")
    at(80)  # type: ignore[operator]

    shown = [line.split()[0] for line in run("tasks").out.splitlines()[1:]]

    assert len(set(shown)) == len(shown) == 5
    for one in shown:
        assert len(one) == 20
        assert run("tasks", "show", one, "--json").json["task"]["id"].startswith(one)


def test_wide_and_a_pipe_show_whole_ids_and_every_column(run: Run, ledger: Opens, at: object) -> None:
    with ledger() as store:
        task_id, _ = full_ledger(store, LONG["words"])
    piped = run("tasks").out
    at(80)  # type: ignore[operator]

    assert run("tasks", "--wide").out == run("--wide", "tasks").out == piped
    assert task_id in piped
    assert piped.splitlines()[0].split() == [
        "ID",
        "STATUS",
        "WAITS",
        "FOR",
        "NAME",
        "OWNER",
        "CHANGED",
        "GOAL",
    ]


def test_what_is_left_out_is_said(run: Run, ledger: Opens, at: object) -> None:
    with ledger() as store:
        full_ledger(store, LONG["words"])
    at(80)  # type: ignore[operator]

    assert re.search(r"without [A-Z ,]*OWNER.*; to show everything, add --wide", run("tasks").err)


def test_every_command_that_lists_is_among_the_listings() -> None:
    listing = {
        name for name in commands(program, "") if name.split()[-1] in {"list", "log", "restarts", "steps"}
    }

    assert listing <= {" ".join(words[:2]) for words in LISTINGS.values()} | set(LISTINGS)


def test_the_shared_options_are_those_of_every_command() -> None:
    context = click.Context(program)
    names = {option for one in program.get_params(context) for option in one.opts}

    assert {"--home", "--store", "--json", "--wide"} <= names


# --- the layout itself


def test_columns_leave_in_their_order_until_the_rest_fits() -> None:
    headers = ("ID", "A", "B", "TEXT")
    row = ("i" * 10, "a" * 20, "b" * 20, "some words that matter most here")

    def left_out(room: int) -> list[str]:
        return lay_out(headers, [row], room, leave=("B", "A")).left_out

    assert [left_out(room) for room in (120, 86)] == [[], []]
    assert [left_out(room) for room in (85, 64)] == [["B"], ["B"]]
    assert [left_out(room) for room in (63, 20)] == [["A", "B"], ["A", "B"]]


@pytest.mark.parametrize(
    ("text", "room", "shown"),
    [
        ("one two three", 13, "one two three"),
        ("one two three", 12, "one two…"),
        ("one two three", 8, "one two…"),
        ("one two three", 7, "one…"),
        ("one, two", 6, "one…"),
        ("longestword", 5, "long…"),
        ("longestword two", 5, "long…"),
        ("数えるまで", 7, "数える…"),
        ("数えるまで", 6, "数え…"),
        ("🦞🦞🦞", 5, "🦞🦞…"),
        ("e\u0301e\u0301e\u0301", 2, "e\u0301…"),
        ("👨\u200d👩\u200d👧 x", 4, "…"),
        ("x", 0, ""),
    ],
)
def test_text_is_cut_between_words(text: str, room: int, shown: str) -> None:
    assert cut(text, room) == shown
    assert width_of(shown) <= room


def test_lines_are_parted_between_words() -> None:
    assert list(wrapped("one two three averylongword x", 9)) == ["one two", "three", "averylongword", "x"]


def test_ids_grow_until_they_differ_in_the_table() -> None:
    time, chance = "01kdvdna00", "cd7mzfh08affjefp"
    first, second = f"task_{time}{chance}", f"task_{time}cd7mzfh09affjefp"

    assert shorten_ids([[first]]) == [[f"task_{time}cd7mz"]]
    assert shorten_ids([[first], [f"resumes {second}"]]) == [
        [f"task_{time}cd7mzfh08"],
        [f"resumes task_{time}cd7mzfh09"],
    ]
    assert shorten_ids([["task_short and eff_1"]]) == [["task_short and eff_1"]]
