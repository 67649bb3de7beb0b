"""Looks for `module:name` without importing it: what a module does then is for the gateway alone."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.core.errors import SettingsError


def look_for(spec: str, places: Sequence[Path]) -> str:
    """That it is there, among what is installed or in these directories.

    Raises SettingsError, which says what is not there: the module, the name, or its sense.
    """
    place, _, name = spec.partition(":")
    if place.endswith(".py") or os.sep in place:
        path = Path(place).absolute()
        if not path.is_file():
            raise SettingsError(f"there is no file {path}: name its whole path")
    else:
        found = _source_of(place, [*sys.path, *map(str, places)])
        if found is None:  # no source that could be read: compiled, or a package without a file
            return f"{spec} is there"
        path = found
    names = _names_in(path)
    first = name.partition(".")[0]
    if first and names is not None and first not in names:
        raise SettingsError(f"{place} has no {first!r}: check the name in {path}")
    return f"{spec} is there"


def _source_of(module: str, search: Sequence[str] | None) -> Path | None:
    if module in sys.builtin_module_names:
        return None
    spec: importlib.machinery.ModuleSpec | None = None
    parts = module.split(".")
    for place in range(len(parts)):
        name = ".".join(parts[: place + 1])
        spec = importlib.machinery.PathFinder.find_spec(name, search)
        if spec is None:
            raise SettingsError(
                f"no module {name!r}, from {module!r}: install it, put it into the home, or name its "
                "directory in gateway.python_path"
            )
        search = spec.submodule_search_locations
        if search is None and place + 1 < len(parts):
            raise SettingsError(f"{name} is no package, so there is no {module!r}: check the name")
    origin = None if spec is None else spec.origin
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def _names_in(path: Path) -> set[str] | None:
    """What the module binds at its top; None when only importing it would tell."""
    try:
        tree = ast.parse(importlib.util.decode_source(path.read_bytes()), filename=str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"{path}:{line}" if line else f"{path}"
        raise SettingsError(f"{where} cannot be imported, {error.args[0]}: mend it") from error
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}: let the gateway read it") from error
    names = set(_bound(tree.body))
    return None if "*" in names or "__getattr__" in names else names


def _bound(body: Sequence[ast.stmt]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name
        else:  # whatever is bound in it, whether it comes to that or not
            for node in ast.walk(statement):
                yield from _names_of(node)


def _names_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from (one.asname or one.name.partition(".")[0] for one in names)
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
