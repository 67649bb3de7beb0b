"""The parts of docs/ that are made from the code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from holdfast.core.checkpoint import SCHEMA_VERSION, checkpoint_json_schema
from holdfast.core.transitions import MOVES, TASK_REOPENS
from holdfast.engine.program.run_phase import PHASE_MOVES
from holdfast.views.checkpoints import VIEW_VERSION, checkpoint_view_json_schema
from tests.architecture.settings import settings_table
from tests.architecture.source import DOCS, imports_between_parts, modules

ARCHITECTURE = DOCS / "architecture.md"
CONFIGURE = DOCS / "guides" / "configure.md"
STATES = DOCS / "states.md"
SCHEMA = DOCS / "schemas" / f"checkpoint.v{SCHEMA_VERSION}.json"
VIEW_SCHEMA = DOCS / "schemas" / f"checkpoint-view.v{VIEW_VERSION}.json"

_STATES_HEAD = """\
# States

This page is made from `src/holdfast/core/transitions.py`; `make docs` writes it anew and a test compares it.
A record moves only along these arrows.
`move` refuses every other way in memory, and a guarded `UPDATE` refuses it on disk.
A status is terminal when no arrow leaves it; a weaker update to a terminal record is ignored, and says so.
"""

_IN_MEMORY = (
    "These phases (`src/holdfast/engine/program/run_phase.py`) are never stored.",
    "They say what the program may still do, and whether its worker still holds the claim.",
    "",
)


def diagram() -> str:
    """Who imports whom, as Mermaid."""
    arrows = [f"    {one} --> {other}" for one, other in sorted(imports_between_parts())]
    return "\n".join(["```mermaid", "flowchart TD", *arrows, "```"])


def map_of_modules() -> str:
    """One line for each module: its path and the first line of its docstring."""
    lines = []
    for module in modules():
        indent = "  " if "/" in module.path and not module.is_package else ""
        path = module.path.removesuffix("__init__.py") or "__init__.py"
        lines.append(f"{indent}- `{path}` {module.first_line}")
    return "\n".join(lines)


def states_page() -> str:
    """The tables of moves as diagrams and as tables."""
    in_memory: Mapping[StrEnum, frozenset[StrEnum]] = PHASE_MOVES  # type: ignore[assignment]
    return "\n".join(
        [
            _STATES_HEAD,
            *(_states_of(noun, table) for noun, table in MOVES.items()),
            _states_of("run in the memory of its worker", in_memory, _IN_MEMORY),
        ]
    )


def _states_of(noun: str, table: Mapping[StrEnum, frozenset[StrEnum]], about: Sequence[str] = ()) -> str:
    statuses = list(table)
    ends = [status.value for status in statuses if not table[status]]
    reopens = TASK_REOPENS if noun == "task" else {}
    arrows = [f"    [*] --> {statuses[0]}"]
    arrows += [f"    {status} --> {to}" for status in statuses for to in statuses if to in table[status]]
    arrows += [f"    {status} --> {to} : reopened" for status, ways in reopens.items() for to in sorted(ways)]
    arrows += [f"    {end} --> [*]" for end in ends]
    rows = [
        f"| `{status}` | {', '.join(f'`{to}`' for to in statuses if to in table[status]) or 'nothing'} |"
        for status in statuses
    ]
    lines = [f"## {noun}", "", *about, "```mermaid", "stateDiagram-v2", *arrows, "```", ""]
    lines += ["| from | may become |", "| --- | --- |", *rows, ""]
    lines.append(f"Terminal: {', '.join(f'`{end}`' for end in ends) or 'none'}.")
    for status, ways in reopens.items():
        reopened = ", ".join(f"`{to}`" for to in sorted(ways))
        lines.append(f"Reopened: `{status}` to {reopened}.")
    if reopens:
        lines.append(
            "A person reopens a task with `holdfast tasks retry`, or a failed resume with "
            "`holdfast checkpoints retry`, which pauses it; a parent that is tried again goes on with its "
            "children ([why these are not moves](adr/0007-reopening-is-not-a-move.md), "
            "[which tasks a person may retry]"
            "(adr/0022-a-person-may-retry-whatever-ended-without-success.md), "
            "[how a child goes on](adr/0018-a-child-that-failed-goes-on-from-its-own-journal.md))."
        )
    return "\n".join([*lines, ""])


def as_json(schema: dict[str, object]) -> str:
    return json.dumps(schema, indent=2) + "\n"


def with_part(page: str, name: str, content: str) -> str:
    """The page with the text between two markers replaced."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    marked = re.compile(f"{re.escape(begin)}.*{re.escape(end)}", re.DOTALL)
    assert marked.search(page), f"the page has no part {name!r}"
    return marked.sub(lambda _: f"{begin}\n\n{content}\n\n{end}", page)


def architecture_page() -> str:
    page = ARCHITECTURE.read_text(encoding="utf-8")
    return with_part(with_part(page, "diagram", diagram()), "map", map_of_modules())


def configure_page() -> str:
    return with_part(CONFIGURE.read_text(encoding="utf-8"), "settings", settings_table())


# Every page that is made, or partly made, from the code, and how.
GENERATED: dict[Path, Callable[[], str]] = {
    ARCHITECTURE: architecture_page,
    CONFIGURE: configure_page,
    STATES: states_page,
    SCHEMA: lambda: as_json(checkpoint_json_schema()),
    VIEW_SCHEMA: lambda: as_json(checkpoint_view_json_schema()),
}
