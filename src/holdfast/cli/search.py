"""Where the gateway finds modules: what is installed, then what the settings name, then the home."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

from holdfast import trust
from holdfast.config import in_home
from holdfast.config.gateway import Config
from holdfast.core.errors import SettingsError

_VARIABLE = "PYTHONPATH"


def leave_working_directory(environ: MutableMapping[str, str]) -> None:
    """Take out of our path, and of that of every process we start, what depends on where we were started.

    A relative or empty part of PYTHONPATH means the working directory, where any module may lie.
    """
    parts = environ[_VARIABLE].split(os.pathsep) if environ.get(_VARIABLE) else []
    absolute = [part for part in parts if Path(part).is_absolute()]
    relative = {str(Path(part).absolute()) for part in parts if part not in absolute}
    sys.path[:] = [one for one in sys.path if one in absolute or one not in {"", *relative}]
    if absolute:
        environ[_VARIABLE] = os.pathsep.join(absolute)
    else:
        environ.pop(_VARIABLE, None)


def places_of(config: Config, home: Path) -> list[Path]:
    """The directories of modules that are not installed, in the order of the search.

    Raises SettingsError for one that is missing, or that another user can write.
    """
    named = [
        (f"gateway.python_path names {one!r}", in_home(home, one, key="gateway.python_path"))
        for one in config.gateway.python_path
    ]
    for what, place in [*named, (f"home is {str(home)!r}", home)]:
        try:
            problem = trust.why_not_trusted(place)
        except OSError as error:
            raise SettingsError(f"{what}: {error.strerror}; make it, or name another directory") from error
        if problem is not None:
            raise SettingsError(f"{what}, whose modules are not imported: {problem}")
        if not place.is_dir():
            raise SettingsError(f"{what}: that is no directory; name the directory of the modules")
    return list(dict.fromkeys([*(place for _, place in named), home]))


def search(places: list[Path]) -> None:
    """Search there from now on, behind what is installed: a module there is never taken for a part of us."""
    for place in map(str, places):
        if place not in sys.path:
            sys.path.append(place)
