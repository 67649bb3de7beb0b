"""What a call of the program answered, and what a screen must never see."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from holdfast.store.sqlite import SqliteStore

PROGRAM = (sys.executable, "-m", "holdfast")

# Anything a terminal obeys, or that hides or turns around what stands beside it.
UNFIT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
HOSTILE = "a\x1b[31mred\x1b[0m\x1b]0;title\x07\x9b2J\u202eback\u2066\u200b\rover\x00\u2028z"
CANARIES = (
    "ghp_" + "C4n4ry" * 6,
    "sk-ant-" + "c4n4ry" * 5,
    "AKIA" + "CANARY0123456789",
)


class Call(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)

    @property
    def error(self) -> Any:
        return self.json["error"]


class Run(Protocol):
    def __call__(self, *arguments: str) -> Call: ...


class Opens(Protocol):
    """Opens the ledger of the home."""

    def __call__(self) -> AbstractContextManager[SqliteStore]: ...


def environment(home: Path, **more: str) -> dict[str, str]:
    """What a process of its own is told; nothing of ours but the way to the interpreter."""
    return {"PATH": os.environ["PATH"], "HOLDFAST_HOME": str(home)} | more


def run_process(home: Path, *arguments: str, **environ: str) -> Call:
    """The program in a process of its own."""
    done = subprocess.run(
        [*PROGRAM, *arguments],
        env=environment(home, **environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Call(status=done.returncode, out=done.stdout, err=done.stderr)
