"""The difference between the loop before and after, as the guide shows it.

`python -m tests.examples.loop_diff` writes it into the guide anew.
"""

from __future__ import annotations

import difflib
import re

from tests.architecture.source import DOCS
from tests.examples.programs import EXAMPLES

GUIDE = DOCS / "guides" / "write-a-task.md"
SHOWN = re.compile(r"```diff\n(.*?)```", re.DOTALL)


def difference() -> str:
    """Unified, without the names of the files and the numbers of the lines."""
    before, after = (
        (EXAMPLES / "loop" / f"{name}.py").read_text(encoding="utf-8").splitlines()
        for name in ("before", "after")
    )
    lines = list(difflib.unified_diff(before, after, lineterm="", n=1))[2:]
    return "".join("@@\n" if line.startswith("@@") else f"{line}\n" for line in lines)


if __name__ == "__main__":
    page = SHOWN.sub(lambda _: f"```diff\n{difference()}```", GUIDE.read_text(encoding="utf-8"))
    GUIDE.write_text(page, encoding="utf-8")
