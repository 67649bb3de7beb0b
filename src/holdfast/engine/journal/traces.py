"""Short tracebacks: the lines of the user's code that an error passed, such as `agent.py:12 in answer`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from holdfast.core.errors import StepFailed
from holdfast.core.payload import clean_text

MAX_FRAMES = 8
MAX_FRAME_CHARS = 200

_OURS = Path(__file__).parents[2]
_STANDARD = Path(os.__file__).parent
_LIBRARIES = frozenset({"site-packages", "dist-packages"})

_Frame = tuple[CodeType, int]


def traceback_of(error: BaseException) -> list[str]:
    """The last places that the error passed, outermost first, without source lines, which may hold a secret.

    Places in libraries are left out, except the one that raised. The saved places of a failed step, and those
    of the first error of a group, follow the error's own.
    """
    places = _places_in(error)
    if isinstance(error, StepFailed):
        before = error.facts.get("traceback")
        places += [str(one) for one in before] if isinstance(before, list) else []
    elif isinstance(error, BaseExceptionGroup):
        places += traceback_of(error.exceptions[0])
    return places[-MAX_FRAMES:]


def _places_in(error: BaseException) -> list[str]:
    frames = list(_frames_of(error))
    places: list[str] = []
    for depth, (code, line) in enumerate(reversed(frames)):
        where = _shown_path(code.co_filename, is_last=depth == 0)
        if where is not None:
            place = f"{where}:{line} in {code.co_qualname}"
            places.append(clean_text(place, max_chars=MAX_FRAME_CHARS).replace("\n", " "))
        if len(places) == MAX_FRAMES:
            break
    return places[::-1]


def _frames_of(error: BaseException) -> Iterator[_Frame]:
    passed = error.__traceback__
    while passed is not None:
        yield passed.tb_frame.f_code, passed.tb_lineno
        passed = passed.tb_next


def _shown_path(filename: str, *, is_last: bool) -> str | None:
    """The path as the user would write it; None for code that is not the user's and did not raise."""
    path = Path(filename)
    if path.is_relative_to(_OURS) or filename.startswith("<frozen"):
        return None
    library = next((number for number, part in enumerate(path.parts) if part in _LIBRARIES), None)
    if library is not None:
        return str(Path(*path.parts[library + 1 :])) if is_last else None
    if path.is_relative_to(_STANDARD):
        return str(path.relative_to(_STANDARD)) if is_last else None
    return str(path) if not path.is_absolute() else _relative(path)


def _relative(path: Path) -> str:
    """Relative to the working directory, or to the entry of sys.path: absolute paths tell too much."""
    places = [Path(one) for one in sys.path if one and Path(one).is_absolute()]
    for root in (Path(os.getcwd()), *sorted(places, key=lambda one: -len(one.parts))):  # noqa: PTH109
        if len(root.parts) > 1 and path.is_relative_to(root):
            return str(path.relative_to(root))
    return str(Path(*path.parts[-2:]))
