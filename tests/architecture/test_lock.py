"""The lock file pins everything, by hash, and says nothing about the machine that made it."""

from __future__ import annotations

import itertools
import re
import tomllib

import pytest

from tests.architecture.source import ROOT

LOCK = ROOT / "requirements" / "dev.txt"
PINNED = re.compile(
    r"^([a-z0-9-]+)==(\S+)(?: ; [^\\\n]+)? \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *itertools.chain(*extras.values())]
    return {re.split(r"[\[<>=!~ ;]", one)[0].lower().replace("_", "-") for one in wanted}


def test_every_requirement_is_pinned_by_version_and_hash() -> None:
    lock = LOCK.read_text(encoding="utf-8")
    requirements = re.findall(r"^[^ #\n].*", lock, re.MULTILINE)

    assert len(PINNED.findall(lock)) == len(requirements) > 20


def test_everything_that_the_project_declares_is_locked() -> None:
    locked = {name for name, _, _ in PINNED.findall(LOCK.read_text(encoding="utf-8"))}

    assert declared() <= locked, "run `make lock`"


@pytest.mark.parametrize(
    "trace", ["://", "--index-url", "--find-links", "--extra-index", " /", "(/", "@ ", "~/"]
)
def test_the_lock_names_no_index_no_path_and_no_host(trace: str) -> None:
    assert [line for line in LOCK.read_text(encoding="utf-8").splitlines() if trace in line] == []
