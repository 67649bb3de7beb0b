"""Finds the values of declared secrets when a step is called with them, and keeps them from being stored."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from holdfast.core.errors import BadInput
from holdfast.core.redaction import keep_secret
from holdfast.core.secret import Secret, is_own_variable, secret

PREFIX = "HOLDFAST_SECRET_"

# What a script declares: each name with its value or a function that gives it; or one function for any name.
Given: TypeAlias = Mapping[str, "str | Callable[[], str | None]"] | Callable[[str], str | None]


class DeclaredSecret(msgspec.Struct, frozen=True, kw_only=True):
    """One secret that the operator declared: the variable that holds it, and which tasks may use it."""

    variable: str
    # None for all tasks of the process's own code.
    tasks: frozenset[str] | None = None
    # Why another task does not get it, and the setting that would change that.
    limit: str = ""


class Secrets:
    """Gives programs the values of declared names, and of no other."""

    def __init__(
        self,
        given: Given | None = None,
        environment: Mapping[str, str] = os.environ,
        *,
        declared: Mapping[str, DeclaredSecret] | None = None,
        is_gateway: bool = False,
        is_own: Callable[[str], bool] = lambda _value: False,
    ) -> None:
        """`given` is what a script declares, `declared` what the settings do. In a script a variable
        HOLDFAST_SECRET_NAME declares NAME, too; in a gateway only the settings do. `is_own` knows the values
        that belong to the process itself, such as its tokens: no program ever gets one of them."""
        self._given = checked_secrets(given)
        self._environment = environment
        self._declared = dict(declared or {})
        self._is_gateway = is_gateway
        self._is_own = is_own

    @property
    def variables(self) -> frozenset[str]:
        """The variables that hold declared secrets: no command inherits them."""
        return frozenset(one.variable for one in self._declared.values())

    def declare(self, declared: Mapping[str, DeclaredSecret]) -> None:
        """From now on these names are declared, in place of those before."""
        self._declared = dict(declared)

    def find(self, name: str, *, task: str) -> str:
        """The value, for a step of that task. Raises BadInput with the setting that is missing."""
        if is_own_variable(name):
            raise _refused(name, task, f"{name} is the gateway's own; name one that is declared")
        value = self._look_up(name, task)
        if self._is_own(value):
            raise _refused(
                name, task, "it holds a token or a secret that is the gateway's own; give it another value"
            )
        # From now on a result with this value in it is sealed, and an error with it is redacted.
        keep_secret(value, is_own=False)
        return value

    def _look_up(self, name: str, task: str) -> str:
        declared = self._declared.get(name)
        if declared is not None:
            if declared.tasks is not None and task not in declared.tasks:
                raise _refused(name, task, declared.limit)
            value = self._environment.get(declared.variable)
            if value is None:
                why = f"the variable {declared.variable} is not set here; set it before the start"
                raise _refused(name, task, why)
            return value
        found = None if self._is_gateway else self._environment.get(PREFIX + name)
        if found is None:
            found = self._from_script(name)
        if not isinstance(found, str):
            raise _refused(name, task, self._remedy(name, task))
        return found

    def _from_script(self, name: str) -> str | None:
        if self._given is None:
            return None
        if not isinstance(self._given, Mapping):
            return self._given(name)
        value = self._given.get(name)
        return value() if callable(value) else value

    def _remedy(self, name: str, task: str) -> str:
        setting = f'[secrets.{name}] env = "{name}", tasks = ["{task}"]'
        if self._is_gateway:
            return f"it is not declared; add it to holdfast.toml: {setting}"
        return (
            f"it is not declared; give open(…, secrets={{{name!r}: …}}), or set {PREFIX}{name} in the "
            f"environment; for `holdfast run` and `holdfast up` add it to holdfast.toml: {setting}"
        )

    def opened(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, task: str
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with values in place of secrets: themselves, and one level inside of them."""
        return (
            tuple(self._open(value, task) for value in args),
            {name: self._open(value, task) for name, value in kwargs.items()},
        )

    def _open(self, value: Any, task: str) -> Any:
        kind = type(value)
        if kind is Secret:
            return self.find(value.name, task=task)
        # Only plain containers: a durable list may be long, and holds no secrets. A dictionary that merely
        # looks like a reference stays what it is: a model could have written it.
        if kind is dict and Secret in map(type, value.values()):
            return {name: self._open_one(inner, task) for name, inner in value.items()}
        if kind in (list, tuple) and Secret in map(type, value):
            return kind(self._open_one(inner, task) for inner in value)
        return value

    def _open_one(self, value: Any, task: str) -> Any:
        return self.find(value.name, task=task) if type(value) is Secret else value


def _refused(name: str, task: str, why: str) -> BadInput:
    return BadInput(f"secret {name}", f"task {task} does not get it: {why}")


def checked_secrets(given: Given | None) -> Given | None:
    """What a script gives as `secrets`. Raises BadInput, and never shows a value."""
    if given is None or (not isinstance(given, Mapping) and callable(given)):
        return given
    if not isinstance(given, Mapping):
        raise BadInput("secrets", f"give a mapping or a function, not {type(given).__name__}")
    for name, value in given.items():
        secret(name)  # says what a name looks like
        if is_own_variable(name):
            raise BadInput(f"secrets {name}", "that name is the gateway's own; choose another")
        if not isinstance(value, str) and not callable(value):
            raise BadInput(f"secrets {name}", f"give its text, or a function, not {type(value).__name__}")
    return dict(given)
