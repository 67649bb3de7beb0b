"""Finds the values of secrets at the moment a step is called with them, and keeps them from being stored."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.core.errors import BadInput
from holdfast.core.redaction import keep_secret
from holdfast.core.secret import Secret

PREFIX = "HOLDFAST_SECRET_"


class Secrets:
    """Where values come from: the environment, and whatever the process was given beside it."""

    def __init__(
        self, resolve: Callable[[str], str | None] | None = None, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._resolve = resolve
        self._environment = environment

    def find(self, name: str) -> str:
        """`HOLDFAST_SECRET_NAME` first, then what was given to `open`, then `NAME`. Raises BadInput."""
        value = self._environment.get(PREFIX + name)
        if value is None and self._resolve is not None:
            value = self._resolve(name)
        if value is None:
            value = self._environment.get(name)
        if not isinstance(value, str):
            raise BadInput(
                f"secret {name}",
                f"nobody knows its value here; set {PREFIX}{name} in the environment, or give "
                "open(…, secrets=…) a function that finds it",
            )
        # Whatever the step returns or raises, the value is removed from it before that is stored.
        keep_secret(value)
        return value

    def opened(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with values in place of secrets: themselves, and one level inside of them."""
        return tuple(map(self._open, args)), {name: self._open(value) for name, value in kwargs.items()}

    def _open(self, value: Any) -> Any:
        kind = type(value)
        if kind is Secret:
            return self.find(value.name)
        # Only plain containers: a durable list may be long, and holds no secrets. A dictionary that merely
        # looks like a reference stays what it is: a model could have written it.
        if kind is dict and Secret in map(type, value.values()):
            return {name: self._open_one(inner) for name, inner in value.items()}
        if kind in (list, tuple) and Secret in map(type, value):
            return kind(map(self._open_one, value))
        return value

    def _open_one(self, value: Any) -> Any:
        return self.find(value.name) if type(value) is Secret else value
