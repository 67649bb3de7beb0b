"""A program on its way: which scope is open, what is committed when, where each call of its author goes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime, timedelta
from typing import Any

from holdfast.core.effect import Effect
from holdfast.core.effect_class import opaque
from holdfast.core.errors import BadInput
from holdfast.core.ladder import Budget
from holdfast.core.payload import encode_payload
from holdfast.core.plan import Plan, PlanItem
from holdfast.core.scope import FinishedTurn, TurnSummary
from holdfast.core.step import Step
from holdfast.core.task import Progress
from holdfast.core.transitions import EffectStatus
from holdfast.engine.effects import Effects
from holdfast.engine.lists import Memory
from holdfast.engine.live import Live
from holdfast.engine.scopes import SPENT, Key, Past, Scope
from holdfast.engine.stepper import FREE, Doing, Stepper
from holdfast.engine.waits import Waits
from holdfast.store import Tx

ENDLESS = 2**53
_PREVIEW_BYTES = 120


class PlanKeeper:
    """The plan as the program changes it, until a turn makes the change durable."""

    def __init__(self, plan: Plan, *, is_saved: bool) -> None:
        self.plan = plan
        self.is_saved = is_saved
        self.begun: str | None = None

    def replan(self, items: tuple[PlanItem, ...]) -> None:
        self.plan, self.is_saved = Plan(items=items), False

    def complete(self, item_id: str) -> None:
        self.plan, self.is_saved, self.begun = self.plan.complete(item_id), False, None

    def next(self) -> PlanItem | None:
        return next((item for item in self.plan.items if not item.is_done), None)


class Loop:
    """A loop that has begun. The iterator that the program holds is known only weakly: when the program
    leaves the loop, by whatever way, nobody holds it any more, and that is how we know."""

    def __init__(self, iterator: object, path: str, most: int, plan: PlanKeeper | None) -> None:
        self._iterator = weakref.ref(iterator)
        self.path = path
        self.most = most
        self.plan = plan
        self.seq = 0
        # Of the turn that is open.
        self.scope: Scope | None = None
        self.item: PlanItem | None = None
        self.began_at: datetime | None = None

    @property
    def was_left(self) -> bool:
        return self._iterator() is None

    @property
    def turn(self) -> str:
        return str(self.seq) if self.item is None else self.item.id


class Program:
    """One run's program: all that the author's objects share."""

    def __init__(self, live: Live, past: Past, budget: Budget | None) -> None:
        self.live = live
        self.past = past
        self.waits = Waits(live, past)
        self.stepper = Stepper(live, past, self._pause)
        self.memory = Memory(live, past, self.scope_now)
        self.plan: PlanKeeper | None = None
        # Told with the turn that is open.
        self.progress: Progress | None = None
        self._effects = Effects(live, past, self.stepper, park=self._park, sleep_until=self.waits.sleep_until)
        self._budget = budget
        self._spent = past.spent
        self._began_at = live.clock.now()
        self._root = Scope("", ops_done=past.ops.get("", 0))
        self._loops: list[Loop] = []
        self._left: list[Loop] = []

    # --- where we are

    def scope_now(self) -> Scope:
        """The innermost turn that is open, or the task itself."""
        self._notice_left()
        for loop in reversed(self._loops):
            if loop.scope is not None:
                return loop.scope
        return self._root

    @property
    def is_in_turn(self) -> bool:
        return self.scope_now() is not self._root

    async def settled(self) -> None:
        """Commit the turns of loops that the program has left."""
        self.live.check()
        self._notice_left()
        while self._left:
            await self._commit(self._left[0], is_over=True)
            del self._left[0]

    def _notice_left(self) -> None:
        for place, loop in enumerate(self._loops):
            if loop.was_left:
                self._left.extend(reversed(self._loops[place:]))
                del self._loops[place:]
                return

    async def key(self, name: str, step_id: str | None = None) -> Key:
        """The key of a call that is no step of the author's, but is remembered as one."""
        await self.settled()
        scope = self.scope_now()
        key = scope.key(name, step_id)
        scope.ended(key)
        return key

    async def once(self, key: Key, result: object, act: Callable[[Tx], object]) -> None:
        """Do something in the ledger unless it was done before."""
        if key not in self.past.steps:
            await self.waits.note(key, encode_payload("result", result), act)

    # --- steps

    def step(
        self, scope: Scope, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        self.live.check()
        doing = self.stepper.begin(scope, fn, args, kwargs)
        return self._carry(scope, doing)

    def tool(
        self, scope: Scope, fn: Callable[..., Any], arguments: Mapping[str, Any] | None, tool_id: str | None
    ) -> Coroutine[Any, Any, Any]:
        if arguments is not None and not isinstance(arguments, Mapping):
            raise BadInput("arguments", f"a tool's arguments have names; {type(arguments).__name__} has none")
        self.live.check()
        doing = self.stepper.begin(scope, fn, (), dict(arguments or {}), step_id=tool_id)
        if doing.options.effect is None:
            doing.effect = opaque
        return self._carry(scope, doing)

    async def _carry(self, scope: Scope, doing: Doing) -> Any:
        try:
            if self._left or self._loops:
                await self.settled()
            self.live.check()
            if self._budget is not None:
                await self.keep_budget()
            if doing.effect is None or doing.effect.effect_class in FREE:
                return await self.stepper.carry(doing)
            return await self._effects.carry(doing, doing.effect)
        finally:
            scope.ended(doing.key)

    async def _pause(self, key: Key, seconds: float) -> None:
        await self.waits.sleep_until(key, self.live.clock.now() + timedelta(seconds=seconds))

    async def _park(self, effect: Effect) -> None:
        """Wait for a person's decision about an effect; it is looked at again afterwards."""

        def is_settled(tx: Tx) -> bytes | None:
            return None if tx.effects.get(effect.id).status is EffectStatus.UNKNOWN else b"null"

        await self.waits.park(f"review:{effect.id}", is_settled)
        key = (effect.scope, effect.name, effect.occurrence)

        def look(tx: Tx) -> tuple[Effect, Step | None]:
            return tx.effects.get(effect.id), tx.journal.find_step(effect.task_id, *key)

        found, step = await self.live.store.read(look)
        self.past.effects[key] = found
        if step is not None:
            self.past.steps[key] = step

    # --- turns

    def begin_loop(self, iterator: object, name: str | None, most: int, plan: PlanKeeper | None) -> Loop:
        self.live.check()
        loop = Loop(iterator, self.scope_now().loop(name), most, plan)
        known = self.past.loops.get(loop.path)
        if known is not None:
            loop.seq = known.turns_done
            if known.is_over:
                loop.most = loop.seq
        self._loops.append(loop)
        return loop

    async def next_turn(self, loop: Loop) -> bool:
        """Commit the turn that ends here and open the next; False when there is none."""
        await self.settled()
        while self._loops and self._loops[-1] is not loop:
            # One further in is still held, by a name perhaps; its time is over all the same.
            self._left.append(self._loops.pop())
            await self.settled()
        if loop.scope is not None:
            await self._commit(loop, is_over=loop.seq >= loop.most)
        if loop.plan is not None and not loop.plan.is_saved:
            await self._save_plan(loop.plan)
        item = None if loop.plan is None else loop.plan.next()
        if loop.seq >= loop.most or (loop.plan is not None and item is None):
            self._loops = [one for one in self._loops if one is not loop]
            return False
        loop.seq += 1
        loop.item, loop.began_at = item, self.live.clock.now()
        path = f"{loop.path}:{loop.turn}"
        loop.scope = Scope(path, ops_done=self.past.ops.get(path, 0))
        if loop.plan is not None and item is not None:
            loop.plan.begun = item.id
        return True

    async def _save_plan(self, keeper: PlanKeeper) -> None:
        live, now, plan = self.live, self.live.clock.now(), keeper.plan
        await live.write(lambda tx: tx.journal.save_plan(live.claim, plan, now=now))
        keeper.is_saved = True

    async def _commit(self, loop: Loop, *, is_over: bool) -> None:
        """What the turn did becomes data: its steps are summed up, what it appended is durable."""
        if loop.scope is None:
            return
        live, now = self.live, self.live.clock.now()
        commit, after = self._committing(loop, is_over=is_over)

        def commit_turn(tx: Tx) -> None:
            tx.journal.require(live.claim)
            commit(tx)
            if live.claim.is_alone and tx.runs.exonerate(live.claim.run_id, live.claim.fence, now=now):
                tx.hint("runs")

        await live.write(commit_turn)
        after()

    def _committing(self, loop: Loop, *, is_over: bool) -> tuple[Callable[[Tx], None], Callable[[], None]]:
        """The part of a write that commits a turn, and what to do in memory once that is durable."""
        assert loop.scope is not None
        assert loop.began_at is not None
        claim, now, path = self.live.claim, self.live.clock.now(), loop.scope.path
        flush = self.memory.flush(closing=path)
        within = [key for key in self.past.steps if key[0] == path or key[0].startswith(f"{path}/")]
        finished = FinishedTurn(
            task_id=claim.task_id,
            loop=loop.path,
            seq=loop.seq,
            turn=loop.turn,
            run_id=claim.run_id,
            steps=tuple(_summary_of(self.past.steps[key]) for key in within),
            began_at=loop.began_at,
            ended_at=now,
        )
        keeper, progress = loop.plan, self.progress
        if keeper is not None and loop.item is not None:
            keeper.complete(loop.item.id)
        plan = None if keeper is None else keeper.plan

        def commit(tx: Tx) -> None:
            flush.apply(tx, claim.task_id)
            if plan is not None:
                tx.journal.save_plan(claim, plan, now=now)
            if progress is not None:
                tx.tasks.save_progress(claim.task_id, claim.run_id, claim.fence, progress, now=now)
            tx.turns.commit(finished, path, is_over=is_over)

        def after() -> None:
            self.memory.flushed(flush)
            if keeper is not None:
                keeper.is_saved = True
            self.progress = None
            loop.scope = None
            for key in within:
                del self.past.steps[key]

        return commit, after

    def ending(self) -> Callable[[Tx], None]:
        """What must be durable together with the end of the run: open turns and everything appended."""
        self._notice_left()
        open_ones = [loop for loop in (*self._left, *reversed(self._loops)) if loop.scope is not None]
        if not open_ones:
            flush, task_id = self.memory.flush(closing=None), self.live.claim.task_id
            return lambda tx: flush.apply(tx, task_id)
        # Further in first. Each carries all that was appended; the same again changes nothing.
        parts = [self._committing(loop, is_over=True)[0] for loop in open_ones]

        def end(tx: Tx) -> None:
            for part in parts:
                part(tx)

        return end

    # --- budgets

    def spend(self, cost: float) -> float:
        spent = self.memory.value(SPENT, 0.0, float)
        self._spent = spent.set(spent.get() + cost)
        return self._spent

    async def keep_budget(self) -> None:
        """Pause and ask a person, instead of killing."""
        if self._budget is None:
            return
        if self.past.steps_done is None:
            task_id = self.live.task.id
            heads = await self.live.store.read(lambda tx: tx.journal.heads([task_id]))
            self.past.steps_done = heads[task_id].steps_saved if task_id in heads else 0
        grants = 1
        while ("", "budget", str(grants)) in self.past.steps:
            grants += 1
        used = self._used_up(self._budget, grants)
        if used is None:
            return
        payload = await self.waits.ask(
            ("", "budget", str(grants)),
            f"{self.live.task.name} has used its budget ({used}). Go on?",
            choices=("go on", "stop"),
            lasts=None,
            default=None,
            has_default=False,
        )
        if self.stepper.opened("budget", payload) != "go on":
            raise BadInput("budget", f"{used} used, and a person said stop")

    def _used_up(self, budget: Budget, grants: int) -> str | None:
        now = self.live.clock.now()
        since = self.live.task.started_at or self._began_at
        steps = (self.past.steps_done or 0) + self.stepper.saved
        if budget.steps is not None and steps >= budget.steps * grants:
            return f"{budget.steps * grants} steps"
        if budget.time is not None and now - since >= budget.time * grants:
            return str(budget.time * grants)
        if budget.cost is not None and self._spent >= budget.cost * grants:
            return f"a cost of {self._spent:g}"
        return None


def _summary_of(step: Step) -> TurnSummary:
    """What stays of a plain step when its turn has committed."""
    return TurnSummary(
        name=step.name,
        digest="" if step.input_digest is None else step.input_digest.hex(),
        size_bytes=len(step.result),
        duration_us=int((step.ended_at - step.started_at) / timedelta(microseconds=1)),
        preview=step.result[:_PREVIEW_BYTES].decode("utf-8", "replace"),
    )
