"""Where the gateway finds modules: installed packages, then gateway.python_path, then the home."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

from holdfast import trust
from holdfast.config import in_home
from holdfast.config.sections import Config
from holdfast.core.errors import SettingsError

_VARIABLE = "PYTHONPATH"


def leave_working_directory(environ: MutableMapping[str, str]) -> None:
    """Remove the working directory from our module path and from that of every process we start.

    A relative or empty part of PYTHONPATH means the working directory, where any user may have put a module.
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
    """The directories to search after installed packages, in order.

    Raises SettingsError if one is missing, or if another user can write to it.
    """
    named = [
        (f"gateway.python_path names {one!r}", in_home(home, one, key="gateway.python_path"))
        for one in config.gateway.python_path
    ]
    for what, place in [*named, (f"home is {str(home)!r}", home)]:
        try:
            problem = trust.why_not_trusted(place)
        except OSError as error:
            raise SettingsError(f"{what}: {error.strerror}; create it, or name another directory") from error
        if problem is not None:
            raise SettingsError(f"{what}, whose modules are not imported: {problem}")
        if not place.is_dir():
            raise SettingsError(
                f"{what}: it is not a directory; name the directory that contains the modules"
            )
    return list(dict.fromkeys([*(place for _, place in named), home]))


def search(places: list[Path]) -> None:
    """Append these to the module path: after installed packages, so that no module there replaces ours."""
    for place in map(str, places):
        if place not in sys.path:
            sys.path.append(place)
