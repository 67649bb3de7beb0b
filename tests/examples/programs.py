"""The examples, and what each of them prints."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import msgspec

EXAMPLES = Path(__file__).parents[2] / "examples"


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One program under examples/, and what it says when nothing goes wrong."""

    name: str
    # What its steps print, in order; each is printed once.
    steps: tuple[str, ...]
    # What it prints in the end.
    result: str
    # After the name of the program, on the command line.
    arguments: tuple[str, ...] = ()
    # What the world holds afterwards: how many lines in which file.
    world: dict[str, int] = {}
    # The steps whose outcome is unknown when the process dies inside them.
    opaque: tuple[str, ...] = ()
    # Whether several steps may be under way at once.
    is_parallel: bool = False
    # The steps in which a process is really killed: one of each kind. None: every step.
    killed_in: tuple[str, ...] | None = None

    @property
    def path(self) -> Path:
        return EXAMPLES / f"{self.name}.py"

    @property
    def module(self) -> ModuleType:
        return import_module(f"examples.{self.name.replace('/', '.')}")

    @property
    def ledger(self) -> str:
        """The file that it opens when no other is named, in the working directory."""
        return f"{self.name.partition('/')[0]}.db"


RESEARCH = (
    "thinking, turn 1",
    "searching for tides",
    "searching for tides and the moon",
    "thinking, turn 2",
    "publishing: What moves the tides",
    "thinking, turn 3",
)

ALL = (
    Example(
        name="research",
        steps=RESEARCH,
        result="The moon moves the tides.",
        world={"published.txt": 1},
        killed_in=("searching for tides", "thinking, turn 2", "publishing: What moves the tides"),
    ),
    Example(
        name="research_pydantic_ai",
        steps=RESEARCH,
        result="The moon moves the tides.",
        world={"published.txt": 1},
        is_parallel=True,  # pydantic-ai calls the tools of one answer side by side
        killed_in=("searching for tides", "thinking, turn 2", "publishing: What moves the tides"),
    ),
    Example(
        name="migration",
        steps=(
            "prep: writing the inventory",
            "transfer: copying ada.txt",
            "transfer: copying grace.txt",
            "transfer: copying mary.txt",
            "integrate: writing the index",
            "validate: comparing",
        ),
        result="3 files moved",
        world={"new/index.txt": 3},
        killed_in=(
            "prep: writing the inventory",
            "transfer: copying grace.txt",
            "integrate: writing the index",
            "validate: comparing",
        ),
    ),
    Example(
        name="approval",
        arguments=("yes",),
        steps=("writing the notes of 1.2", "releasing 1.2"),
        result="released 1.2",
        world={"released.txt": 1},
    ),
    Example(
        name="children",
        steps=("measuring in Brest", "measuring in Cuxhaven", "measuring in Saint-Malo"),
        result="the highest of 3 tides: 12.2 m in Saint-Malo",
        is_parallel=True,
        killed_in=("measuring in Cuxhaven",),
    ),
    Example(
        name="poll",
        steps=tuple(f"look {look}: the archive is at {25 * look} %" for look in (1, 2, 3, 4)),
        result="the archive was ready at look 4",
        killed_in=("look 2: the archive is at 50 %", "look 4: the archive is at 100 %"),
    ),
    Example(
        name="loop/after",
        steps=(
            "thinking, turn 1",
            "searching for tides",
            "thinking, turn 2",
            "writing to Ada",
            "thinking, turn 3",
        ),
        result="Ada was told about the tides.",
        opaque=("searching for tides", "writing to Ada"),
        killed_in=("thinking, turn 1", "searching for tides", "writing to Ada", "thinking, turn 3"),
    ),
)
