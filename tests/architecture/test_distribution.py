"""What is installed by which name: the library alone is small, and every hint installs ours."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from holdfast.cli import entry
from tests.architecture.source import PACKAGE, ROOT

# On the package index `holdfast` is another project: no page may tell users to install that.
OTHER_PROJECT = re.compile(
    r"(?:pip|pipx|uv|uvx|poetry)\b[^\n`]*?\b(?:install|add|run)\b[^\n`]*?[ '\"]holdfast(?![\w./-])"
)
WRONG_EXTRA = re.compile(r"\bholdfast\[")

# Stands for an environment into which only the library was installed.
WITHOUT_THE_GATEWAY = f"""
import sys
from importlib.machinery import PathFinder

class Hides(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        is_hidden = name.partition(".")[0] in {entry.MODULES!r}
        return None if is_hidden else super().find_spec(name, path, target)

sys.meta_path[:] = [Hides if finder is PathFinder else finder for finder in sys.meta_path]
"""
SCRIPT = """
import asyncio
import holdfast as hf

for name in hf.__all__:
    getattr(hf, name)

@hf.task
async def doubles(run: hf.Run, number: int) -> int:
    async def double(one: int) -> int:
        return 2 * one
    return await run.step(double, number)

async def main() -> None:
    async with hf.open("sqlite:///work.db", tasks=[doubles]) as holdfast:
        handle = await holdfast.start(doubles(21))
        print(await handle.result())

asyncio.run(main())
"""
SETTINGS = """
[agents.main]
command = ["true"]

[schedules.hourly]
cron = "0 * * * *"
agent = "main"
prompt = "What is new?"
"""
COMMAND = """
from holdfast.cli.entry import main
sys.exit(main())
"""


def texts() -> Iterator[tuple[str, str]]:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    for file in [*pages, *PACKAGE.rglob("*.py"), ROOT / "Makefile"]:
        yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")


def python(home: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_GATEWAY + code, *arguments],
        cwd=home,
        env={"HOLDFAST_HOME": str(home / "home"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("wrong", [OTHER_PROJECT, WRONG_EXTRA], ids=["install", "extra"])
def test_no_page_and_no_message_installs_the_other_project(wrong: re.Pattern[str]) -> None:
    assert [(where, found[0]) for where, text in texts() for found in wrong.finditer(text)] == []


@pytest.mark.parametrize(
    ("hint", "is_wrong"),
    [
        ("pip install holdfast", True),
        ("pip install 'holdfast[postgres]'", True),
        ("uv add holdfast", True),
        ("pip install 'holdfast-agents[postgres]'", False),
        ("pip install holdfast-agents", False),
        ("`pip install .`; the command is holdfast", False),
    ],
)
def test_the_other_project_is_told_from_ours(hint: str, is_wrong: bool) -> None:
    assert bool(OTHER_PROJECT.search(hint) or WRONG_EXTRA.search(hint)) is is_wrong


def test_the_modules_of_the_extra_are_those_that_the_command_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {re.split(r"[>=]", one)[0] for one in project["optional-dependencies"]["gateway"]}
    module_of = packages_distributions()

    assert {one.lower().replace("_", "-") for name in entry.MODULES for one in module_of[name]} == wanted


def test_a_program_needs_the_library_alone(tmp_path: Path) -> None:
    ended = python(tmp_path, SCRIPT)

    assert (ended.stdout, ended.stderr) == ("42\n", "")


def test_a_program_in_the_home_of_a_gateway_needs_the_library_alone(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "holdfast.toml").write_text(SETTINGS)

    ended = python(tmp_path, SCRIPT)

    assert (ended.stdout, ended.stderr) == ("42\n", "")


def test_settings_in_yaml_say_what_reads_them(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "holdfast.yaml").write_text("drain_timeout: 5s\n")

    ended = python(tmp_path, SCRIPT)

    assert "SettingsError" in ended.stderr
    assert entry.REMEDY in ended.stderr


@pytest.mark.parametrize("command", ["tasks", "up", "version"])
def test_the_command_without_its_extra_is_one_line_with_the_remedy(tmp_path: Path, command: str) -> None:
    ended = python(tmp_path, COMMAND, command)

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("holdfast: this command needs the module ")
    assert ended.stderr.endswith(f"{entry.REMEDY}\n")
    assert ended.stderr.count("\n") == 1


def test_a_module_that_is_not_of_the_extra_is_not_explained_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails() -> int:
        raise ModuleNotFoundError("No module named 'mine'", name="mine")

    monkeypatch.setattr("holdfast.cli.main.main", fails)

    with pytest.raises(ModuleNotFoundError, match="mine"):
        entry.main()
