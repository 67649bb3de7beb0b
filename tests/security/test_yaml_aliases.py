"""A few lines of YAML cannot stand for more values than settings can need."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config.documents import MAX_BYTES, MAX_VALUES
from holdfast.config.files import load
from holdfast.core.errors import SettingsError
from tests.doors.calls import run_process


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    return path


def laughs(levels: int = 30, width: int = 9) -> str:
    """Each line stands for nine of the line before."""
    more = (f"l{one}: &l{one} [{', '.join([f'*l{one - 1}'] * width)}]" for one in range(1, levels))
    return "\n".join(["l0: &l0 [ha, ha]", *more])


def merges(levels: int = 30) -> str:
    """The same by merge keys, which the parser itself writes out."""
    more = (f"m{one}: &m{one} {{<<: [*m{one - 1}, *m{one - 1}, *m{one - 1}]}}" for one in range(1, levels))
    return "\n".join(["m0: &m0 {a: 1, b: 2}", *more])


@pytest.mark.parametrize("text", [laughs(), merges()], ids=["sequences", "merge keys"])
def test_aliases_that_stand_for_billions_of_values_are_refused_with_the_limit(home: Path, text: str) -> None:
    (home / "holdfast.yaml").write_text(text)

    with pytest.raises(SettingsError, match=rf"expand to more than {MAX_VALUES:,} values"):
        load(home, {})


def test_every_command_says_so_at_once(home: Path) -> None:
    (home / "holdfast.yaml").write_text(laughs())

    called = run_process(home, "status")

    assert called.status == 2
    assert "its aliases expand to more than" in called.err


@pytest.mark.parametrize("text", ["tasks: &a [*a]", "a: &a {b: *a}", "a: &a {<<: *a}"])
def test_an_alias_that_holds_itself_is_refused(home: Path, text: str) -> None:
    (home / "holdfast.yaml").write_text(text)

    with pytest.raises(SettingsError, match=r"holdfast\.yaml is not valid YAML: "):
        load(home, {})


def test_a_table_with_very_many_keys_is_read_in_time_that_grows_with_their_number(home: Path) -> None:
    """The test's own limit is what tells; the square of so many would take minutes."""
    keys = "\n".join(f"k{number}: 1" for number in range(20_000))
    (home / "holdfast.yaml").write_text(keys[:MAX_BYTES])

    with pytest.raises(SettingsError, match="k0"):
        load(home, {})


def test_ordinary_aliases_count(home: Path) -> None:
    (home / "holdfast.yaml").write_text(
        "agents:\n"
        "  one: &one {command: [/bin/echo, &hello hello], timeout_s: &patience 5}\n"
        "  two: {command: [/bin/echo, *hello], timeout_s: *patience}\n"
        "  three: *one\n"
    )

    agents = load(home, {}).config.agents

    assert [(name, one.command[1], one.timeout_s) for name, one in agents.items()] == [
        ("one", "hello", 5),
        ("two", "hello", 5),
        ("three", "hello", 5),
    ]
