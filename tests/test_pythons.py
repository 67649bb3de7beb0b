"""What `make test-pythons` and `make test-lowest` find, and what they say about what they do not find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import pythons


def interpreter(place: Path, name: str, answer: str, status: int = 0) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    file = place / name
    file.write_text(f"#!/bin/sh\necho {answer}\nexit {status}\n")
    file.chmod(0o755)
    return file


def test_the_newest_interpreter_of_each_minor_version_that_starts_is_taken(tmp_path: Path) -> None:
    old = interpreter(tmp_path / "a", "python3.12", "3 12 1")
    new = interpreter(tmp_path / "b", "python3.12", "3 12 10")
    other = interpreter(tmp_path / "a", "python3.13", "3 13 0")
    interpreter(tmp_path / "a", "python3.11", "3 11 9", status=127)
    interpreter(tmp_path / "a", "python3.14", "")
    interpreter(tmp_path / "a", "python3.12-config", "3 12 99")

    found = pythons.interpreters([old.parent, new.parent, tmp_path / "missing"])

    assert found == {(3, 12): new, (3, 13): other}


def test_interpreters_of_pyenv_and_uv_are_found_beside_those_on_the_path(tmp_path: Path) -> None:
    for place in (".pyenv/versions/3.12.1/bin", ".local/share/uv/python/cpython-3.14/bin"):
        (tmp_path / place).mkdir(parents=True)

    found = pythons.directories({"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})

    assert [str(one.relative_to(tmp_path)) for one in found[2:]] == [
        ".pyenv/versions/3.12.1/bin",
        ".local/share/uv/python/cpython-3.14/bin",
    ]


def test_a_python_that_fails_and_one_that_is_missing_are_named_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, ...]] = []

    def make(*arguments: str) -> int:
        asked.append(arguments)
        return 1 if "VENV=.venv-3.13" in arguments else 0

    found = {version: Path(f"/python{pythons.shown(version)}") for version in ((3, 12), (3, 13), (3, 14))}
    monkeypatch.setattr(pythons, "make", make)
    monkeypatch.setattr(pythons, "interpreters", lambda _places: found)

    status = pythons.run_everywhere()

    assert status == 1
    assert asked[0] == ("test-fast", "VENV=.venv-3.12", "PYTHON=/python3.12")
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "Python 3.11: not found on PATH, in pyenv or in uv, so not tested",
        "Python 3.12: passed",
        "Python 3.13: FAILED",
        "Python 3.14: passed",
    ]


@pytest.mark.parametrize(
    ("requirement", "floor"),
    [
        ("uvicorn>=0.50", "uvicorn==0.50"),
        ("psycopg[binary]>=3.2.1", "psycopg==3.2.1"),
        ("pydantic-ai-slim>=2.66,<3", "pydantic-ai-slim==2.66"),
    ],
)
def test_the_floor_of_a_requirement_allows_nothing_newer(requirement: str, floor: str) -> None:
    assert pythons.floor(requirement) == floor


def test_every_dependency_has_a_floor() -> None:
    project = pythons.read_project()

    assert [one for one in project.floors if "==" not in one] == []
    assert pythons.supported(project.classifiers)[0] == (3, 11)
