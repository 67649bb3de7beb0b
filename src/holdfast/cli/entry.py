"""Where the command begins: without the extra `gateway` it says what to install."""

from __future__ import annotations

import importlib.util
import sys

# Each module that the extra brings; a test compares them with pyproject.toml.
MODULES = (
    *("apprise", "click", "cronsim", "h11", "jinja2", "prometheus_client", "rich", "simpleeval"),
    *("starlette", "tzdata", "uvicorn", "websockets", "yaml"),
)
REMEDY = "pip install '.[gateway]' in a checkout"
_FAILED = 1


def main() -> int:
    """Run one command and return its exit status."""
    # A gateway that lacks a part would die in its child, again and again; other commands need few of them.
    if "up" in sys.argv[1:] and (missing := _first_missing()):
        return _refuse(missing)
    try:
        from holdfast.cli.main import main as run

        return run()
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in MODULES:
            raise
        return _refuse(name)


def _first_missing() -> str | None:
    return next((name for name in MODULES if importlib.util.find_spec(name) is None), None)


def _refuse(name: str) -> int:
    sys.stderr.write(f"holdfast: this command needs the module {name}, which is not installed: {REMEDY}\n")
    return _FAILED
