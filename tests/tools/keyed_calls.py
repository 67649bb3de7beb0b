"""Calls a tool, or its verify, as the engine does: inside an effect with a key."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from holdfast.core.step_declarations import Verdict, options_of
from holdfast.engine.program import effects
from holdfast.store.sealing import LedgerKey, MemoryKey, Sealing, Vault

P = ParamSpec("P")
T = TypeVar("T")

VAULT = Vault(MemoryKey())
VAULT.known = LedgerKey.new()
SEALING = Sealing(VAULT)

KEY = "0123456789abcdef0123456789abcdef"


async def call(
    fn: Callable[P, Coroutine[Any, Any, T]], key: str = KEY, /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """What the tool does under this key."""
    with effects.keyed_by("tool", key, SEALING):
        return await fn(*args, **kwargs)


async def verify(fn: Callable[..., Any], key: str = KEY, /, *args: Any, **kwargs: Any) -> Verdict:
    """What the tool's own verify says about this key, after the process that began it is gone."""
    spec = options_of(fn).effect
    assert spec is not None
    assert spec.verify is not None
    with effects.keyed_by("tool", key, SEALING):
        verdict: Verdict = await spec.verify(*args, **kwargs)  # type: ignore[misc]
        return verdict
