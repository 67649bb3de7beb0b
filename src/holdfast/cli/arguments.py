"""Parses the arguments of a task from the command line, by its annotations."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.cli.invocation import read_json
from holdfast.core.errors import BadInput
from holdfast.core.secret import refuse_references
from holdfast.engine.program.definitions import TaskDefinition

Definition = TaskDefinition[..., Any]


def read_arguments(definition: Definition, plain: Sequence[str], as_json: Sequence[str]) -> dict[str, object]:
    """Parse `k=v` by the parameter's annotation, and `k=JSON` as JSON. Raises BadInput."""
    parameters = list(inspect.signature(definition.fn).parameters)[1:]
    hints = _hints_of(definition)
    arguments: dict[str, object] = {}
    for option, pairs in (("--arg", plain), ("--json-arg", as_json)):
        for pair in pairs:
            name, equals, text = pair.partition("=")
            if not equals or not name:
                raise BadInput(option, f"{pair!r:.100} has no value; write {option} name=value")
            if name not in parameters:
                raise BadInput(
                    f"{option} {name}", f"{definition.name} has no such parameter; {_known(parameters)}"
                )
            if name in arguments:
                raise BadInput(f"{option} {name}", "it is given twice; give it once")
            field = f"{option} {name}"
            arguments[name] = (
                _plain(field, text) if option == "--json-arg" else _convert(field, text, hints.get(name, str))
            )
    return arguments


def _plain(field: str, text: str) -> object:
    value = read_json(field, text)
    refuse_references(field, value)
    return value


def _known(parameters: list[str]) -> str:
    return f"its parameters are {', '.join(parameters)}" if parameters else "it takes none"


def _hints_of(definition: Definition) -> dict[str, Any]:
    try:
        return typing.get_type_hints(definition.fn)
    except (NameError, TypeError):  # an annotation that exists for type checkers only
        return {}


def _convert(field: str, text: str, hint: Any) -> object:
    """Convert by the annotation: number, boolean, time or string; for other types parse JSON."""
    try:
        return msgspec.convert(text, hint, strict=False)
    except (msgspec.ValidationError, TypeError) as error:
        problem = error
    if hint in (int, float, bool):
        wanted = {int: "a whole number", float: "a number", bool: "true or false"}[hint]
        raise BadInput(field, f"expected {wanted}, got {text!r:.100}") from problem
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        shown = inspect.formatannotation(hint)
        raise BadInput(
            field, f"cannot read {text!r:.100} as {shown}; write it as JSON with --json-arg"
        ) from error
    refuse_references(field, value)
    try:
        return msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(field, f"{error} ({inspect.formatannotation(hint)})") from error
    except TypeError:  # a type that only the program itself can decode
        return value
