"""Checks that `module:name` exists without importing it: only the gateway may run its code."""

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
    """Check that it exists, among the installed packages or in these directories.

    Raises SettingsError if the module or the name is missing, or the source cannot be parsed.
    """
    place, _, name = spec.partition(":")
    if place.endswith(".py") or os.sep in place:
        path = Path(place).absolute()
        if not path.is_file():
            raise SettingsError(f"there is no file {path}: write its full path")
    else:
        found = _source_of(place, [*sys.path, *map(str, places)])
        if found is None:  # no source to read: compiled, or a namespace package
            return f"{spec} exists"
        path = found
    names = _names_in(path)
    first = name.partition(".")[0]
    if first and names is not None and first not in names:
        raise SettingsError(f"{place} has no {first!r}: check the name in {path}")
    return f"{spec} exists"


def _source_of(module: str, search: Sequence[str] | None) -> Path | None:
    if module in sys.builtin_module_names:
        return None
    spec: importlib.machinery.ModuleSpec | None = None
    parts = module.split(".")
    for place in range(len(parts)):
        name = ".".join(parts[: place + 1])
        spec = importlib.machinery.PathFinder.find_spec(name, search)
        if spec is None:
            needed = "" if name == module else f", needed for {module!r}"
            raise SettingsError(
                f"no module {name!r}{needed}: install it, put it into the home, or add its directory to "
                "gateway.python_path"
            )
        search = spec.submodule_search_locations
        if search is None and place + 1 < len(parts):
            raise SettingsError(f"{name} is not a package, so {module!r} cannot exist: check the name")
    origin = None if spec is None else spec.origin
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def _names_in(path: Path) -> set[str] | None:
    """The names that the module defines at top level; None if only an import could tell."""
    try:
        tree = ast.parse(importlib.util.decode_source(path.read_bytes()), filename=str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"{path}:{line}" if line else f"{path}"
        raise SettingsError(f"{where} cannot be parsed, {error.args[0]}: fix the file") from error
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}: make it readable for the gateway") from error
    names = set(_bound(tree.body))
    return None if "*" in names or "__getattr__" in names else names


def _bound(body: Sequence[ast.stmt]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name
        else:  # any name bound inside, even in a branch that never runs
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
