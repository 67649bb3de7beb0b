"""Imports the module or the file that `module:task` names, and finds the tasks in it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Set
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from holdfast.core.errors import BadInput
from holdfast.engine.program.definitions import TaskDefinition, by_name

Definition = TaskDefinition[..., Any]


class ProgramModule(msgspec.Struct, frozen=True, kw_only=True):
    """An imported module and its tasks."""

    place: str
    module: ModuleType
    # By their names in the module.
    tasks: dict[str, Definition]
    # Also the tasks of modules that it imported: children may be defined there.
    known: list[Definition]

    def find(self, name: str | None) -> Definition:
        """The task by its name in the module, or by its own name. Raises BadInput, which lists the tasks."""
        if name in self.tasks:
            return self.tasks[name]
        for definition in self.tasks.values():
            if definition.name == name:
                return definition
        if name is None:
            raise BadInput(self.place, f"name a task; {self._choice()}")
        if hasattr(self.module, name):
            raise BadInput(
                f"{self.place}:{name}", f"it is not a task; decorate it with @hf.task; {self._choice()}"
            )
        raise BadInput(self.place, f"there is no task {name!r} in it; {self._choice()}")

    def _choice(self) -> str:
        if not self.tasks:
            return "it has no tasks; decorate an async function with @hf.task"
        return f"choose from {', '.join(f'{self.place}:{name}' for name in sorted(self.tasks))}"


def split_place(spec: str) -> tuple[str, str | None]:
    """`module:task` or `path/to/file.py:task`; the task may be missing."""
    place, _, name = spec.partition(":")
    if not place:
        raise BadInput(
            "MODULE:TASK", "write a module or a file, a colon and a task, such as agents.research:research"
        )
    return place, name or None


def load_program(place: str) -> ProgramModule:
    """Import the module or the file. Raises BadInput if the import fails.

    Its directory goes before installed packages in the path, because the user named it.
    """
    before = set(sys.modules)
    is_file = place.endswith(".py") or os.sep in place
    directory = Path(place).absolute().parent if is_file else Path.cwd()
    if sys.path[:1] != [str(directory)]:
        sys.path.insert(0, str(directory))
    module = _import_file(place) if is_file else _import_module(place, f"in {directory} or")
    return _program(place, module, before)


def load_installed(place: str) -> ProgramModule:
    """Import a module from the existing path. Raises BadInput if the import fails."""
    before = set(sys.modules)
    return _program(place, _import_module(place, "in the home, in gateway.python_path or"), before)


def _program(place: str, module: ModuleType, before: Set[str]) -> ProgramModule:
    tasks = _tasks_in(module)
    known = by_name(list(tasks.values()))
    for name in sorted(set(sys.modules) - before):
        for definition in _tasks_in(sys.modules[name]).values():
            known.setdefault(definition.name, definition)
    return ProgramModule(place=place, module=module, tasks=tasks, known=list(known.values()))


def _import_module(name: str, searched: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise BadInput(
                name,
                f"no such module {searched} among the installed packages; "
                "for a file, write path/to/file.py:task",
            ) from error
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:  # the user's own code
        raise _broken(name, error) from error


def _import_file(place: str) -> ModuleType:
    path = Path(place).absolute()
    if not path.is_file():
        raise BadInput(place, "no such file")
    # Import it under its own name, unless another module has that name already.
    name = path.stem if path.stem not in sys.modules else f"holdfast_run_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadInput(place, "it is not a Python file; name a file that ends with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's own code
        del sys.modules[name]
        raise _broken(place, error) from error
    return module


def _broken(place: str, error: BaseException) -> BadInput:
    if isinstance(error, SystemExit):
        return BadInput(
            place, 'it exited during its import; move its script code under `if __name__ == "__main__":`'
        )
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename
    ]
    where = ""
    if isinstance(error, SyntaxError):
        where = f" ({error.filename}, line {error.lineno})"
    elif frames and frames[-1].filename != __file__:
        where = f" ({frames[-1].filename}, line {frames[-1].lineno})"
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    return BadInput(place, f"it cannot be imported: {type(error).__name__}: {said}{where}")


def _tasks_in(module: object) -> dict[str, Definition]:
    """The tasks of a module. Entries of `sys.modules` may be other objects than modules."""
    names = getattr(module, "__dict__", None)
    if not isinstance(names, dict):
        return {}
    return {name: value for name, value in list(names.items()) if isinstance(value, TaskDefinition)}
