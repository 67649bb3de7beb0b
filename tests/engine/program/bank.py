"""A bank whose payments may raise after they were made, and the tasks that pay with it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import holdfast as hf
from holdfast.core.effect import Effect
from holdfast.core.transitions import EffectStatus
from holdfast.engine.client.handles import Handle
from tests.engine.stage import Stage


class QuotaExceeded(Exception):
    pass


class Bank:
    """The outside: what was asked of it, under which key, and what really happened there."""

    def __init__(self, *raises: BaseException) -> None:
        self.raises = list(raises)
        self.keys: list[str] = []
        self.paid: Counter[str] = Counter()

    def pay(self, to: str) -> str:
        """It pays, and then it may raise all the same."""
        self.keys.append(hf.idempotency_key())
        self.paid[to] += 1
        if self.raises:
            raise self.raises.pop(0)
        return f"paid {to}"


def paying(bank: Bank, effect: Any, **options: Any) -> Any:
    @hf.tool(effect=effect, **options)
    async def pay(to: str) -> str:
        return bank.pay(to)

    return pay


def task_of(pay: Any, **options: Any) -> Any:
    """A program that does not catch what its effect raises, with the attempts that every task has."""

    @hf.task(**options)
    async def pays(run: hf.Run) -> str:
        return f"{await run.step(pay, 'ann')}!"

    return pays


def effects_of(stage: Stage, handle: Handle[Any]) -> list[Effect]:
    found = stage.store.read_now(lambda tx: tx.effects.of_task(handle.id))
    return sorted(found, key=lambda effect: effect.generation)


def statuses(stage: Stage, handle: Handle[Any]) -> list[EffectStatus]:
    return [effect.status for effect in effects_of(stage, handle)]


async def started(stage: Stage, task: Any) -> Handle[Any]:
    await stage.open(task)
    handle = await stage.start(task())
    await stage.to_the_end(handle)
    return handle
