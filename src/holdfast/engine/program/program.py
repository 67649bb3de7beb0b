"""A running program: which scope is open, what is committed when, and where each call of its author goes."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.effect import Effect, EffectClass
from holdfast.core.errors import BadInput, Drift
from holdfast.core.events import EventKind
from holdfast.core.ladder import Budget
from holdfast.core.payload import encode_payload
from holdfast.core.plan import Plan, PlanItem
from holdfast.core.program_records import FinishedTurn, KeptSteps, LoopPosition, TurnMarks
from holdfast.core.step import Step, occurrence_of
from holdfast.core.step_declarations import check_retry, opaque
from holdfast.core.task import Progress
from holdfast.core.transitions import EffectStatus
from holdfast.engine.journal.scopes import (
    SPENT,
    Key,
    Marks,
    Scope,
    ScopeChange,
    TaskHistory,
    as_part,
    here,
    inside_step,
    opened_step,
    stored_form,
)
from holdfast.engine.ledger.ledger import tell_item_progress
from holdfast.engine.program.budgets import BudgetKeeper
from holdfast.engine.program.live_run import LiveRun, running
from holdfast.engine.program.run_limit import RunLimit
from holdfast.engine.program.steps import FREE, StepCall, StepRunner
from holdfast.engine.program.waits import Waits
from holdfast.store import Tx

if TYPE_CHECKING:
    # Each is imported by the first run that uses it: a script of plain steps starts faster without them.
    from holdfast.engine.program.effects import Effects
    from holdfast.engine.program.lists import RunMemory
    from holdfast.engine.program.loops import OpenLoop, PlanKeeper

ENDLESS = 2**53
_FIRST = occurrence_of(1)


class RunProgram:
    """The program of one run: what the author's objects share."""

    def __init__(self, live: LiveRun, past: TaskHistory, budget: Budget | None) -> None:
        self.live = live
        self.past = past
        self.waits = Waits(live, past)
        self.stepper = StepRunner(live, past, self.waits)
        self._memory: RunMemory | None = None
        self.plan: PlanKeeper | None = None
        # Items that a person said to skip.
        self.skipped: tuple[str, ...] = ()
        # Saved with the open turn.
        self.progress: Progress | None = None
        self.root = Scope("", past.ops_of(""))
        self._cleaning_scope: Scope | None = None
        self._child: asyncio.Task[Any] | None = None
        # Made for the first effect: most runs have none in this process, and there may be thousands.
        self._effects_here: Effects | None = None
        self._budget = BudgetKeeper(budget, live, past, self.stepper)
        self._given: tuple[str, ...] = ()
        # Loops that the program is in, and loops that it has left: their last turns stay open.
        self._open: list[OpenLoop] = []
        self._left: list[OpenLoop] = []
        self._drifts: tuple[Drift, ...] = ()
        # Something must be made durable, or recorded, before the next call.
        self._owes = False

    def begin(self) -> None:
        """From here on the program runs, in the present asyncio task."""
        here.set(self.root)
        inside_step.set(None)  # the worker itself may run inside a step of another ledger
        running.set(self.live)
        self._child = self.root.child = asyncio.current_task()

    # --- where we are

    @property
    def scope(self) -> Scope:
        """The innermost turn that the caller is in, or the task itself."""
        return here.get() or self.root

    @property
    def is_in_turn(self) -> bool:
        return self.scope is not self.root

    @property
    def _cleaning(self) -> Scope:
        """The scope in which a stopping run cleans up."""
        if self._cleaning_scope is None:
            path = f"cleanup {self.live.run.id} {self.live.claim.fence}"
            self._cleaning_scope = Scope(path, child=self._child)
        return self._cleaning_scope

    @property
    def _effects(self) -> Effects:
        if self._effects_here is None:
            from holdfast.engine.program.effect_settling import EffectSettler
            from holdfast.engine.program.effects import Effects

            parts = (self.live, self.past, self.stepper)
            settler = EffectSettler(
                *parts, park=self._park, until_ended=self.waits.boot_end, on_cut=self._owe_answer
            )
            self._effects_here = Effects(*parts, settler)
        return self._effects_here

    @property
    def memory(self) -> RunMemory:
        if self._memory is None:
            from holdfast.engine.program.lists import RunMemory

            self._memory = RunMemory(self.live, self.past, self._scope_to_change, self._drifted)
        return self._memory

    @property
    def _is_touched(self) -> bool:
        """Whether a change of a list or a value is not durable yet."""
        return self._memory is not None and self._memory.is_touched

    @property
    def _has_cut(self) -> bool:
        """Whether the program has cancelled an effect that is not settled yet."""
        return self._effects_here is not None and self._effects_here.settler.has_cut

    def _scope_to_change(self) -> Scope:
        return self._cleaning if self.live.why is not None else self.scope

    async def key(self, name: str, step_id: str | None = None) -> Key:
        """The key of a call that is journalled like a step, such as a sleep."""
        if (step := inside_step.get()) is not None:
            raise BadInput(name, f"was called inside step {step.name}; do that before the step or after it")
        if self.live.is_stopping:
            await self.live.refuse()
        if self._owes:
            await self.settle()
        path, past = (scope := self._scope_to_change()).path, self.past
        if step_id is None:
            return scope.next_key(stored_form(name, lambda form: past.has((path, form, _FIRST))))
        own = stored_form(step_id, lambda form: past.has((path, name, f"id:{form}")))
        return (path, name, f"id:{own}")

    async def once(self, key: Key, result: object, act: Callable[[Tx], object]) -> None:
        """Do something in the ledger unless it was done before."""
        if self.past.find(key) is None:
            await self.waits.note(key, encode_payload("result", result), act)

    async def settle(self) -> None:
        """Make durable what loops that were left have done, and record drifts."""
        if self._has_cut:
            await self._effects.settler.settle_cut()
        self._owes = False
        drifts, self._drifts = self._drifts, ()
        for drift in drifts:
            await self._tell(drift)
        if self._is_touched or self.progress or not (self.plan is None or self.plan.is_saved):
            await self._save()

    async def _save(self) -> None:
        live = self.live
        save, after = self._saving(live.clock.now(), None)

        def save_all(tx: Tx) -> None:
            tx.journal.require(live.claim)
            save(tx)

        await live.write(save_all)
        after()

    def _owe_answer(self) -> None:
        self._owes = True

    async def settle_cut(self) -> None:
        """Before the end: settle the effects that the program itself has cancelled."""
        if self._has_cut:
            await self._effects.settler.settle_cut()

    async def ask_about(self, failed: Sequence[Key]) -> None:
        """Before a program that these failed steps ended is tried again, or fails: if one of them is an
        opaque effect that may have happened, wait for a person's decision. Raises Stopping then.

        The same for a failed effect that the program has not come to see: a call beside it failed first.
        """
        from holdfast.engine.program.effect_reviews import doubting, failed_unsurely

        seen = set() if self._effects_here is None else self._effects_here.raised
        effects = failed_unsurely(
            self.past, [*failed, *(key for key in self.past.effects if key not in seen)]
        )
        if not effects:
            return
        claim, now = self.live.claim, self.live.clock.now()
        doubts = [doubting(one, claim, self.past.beside(one.key), now) for one in effects]

        def look(tx: Tx) -> None:
            for put_in_doubt in doubts:
                put_in_doubt(tx)

        # In the write that gives up the claim, so that no decision comes before the run waits for it.
        await self.waits.park(f"review:{effects[0].id}", look)

    def _drifted(self, drift: Drift) -> None:
        self._drifts = (*self._drifts, drift)
        self._owes = True

    async def _tell(self, drift: Drift) -> None:
        live, now = self.live, self.live.clock.now()

        def tell(tx: Tx) -> None:
            tx.emit(
                EventKind.STEP_DRIFTED,
                live.claim.run_id,
                at=now,
                task_id=live.claim.task_id,
                step=drift.where,
                why=drift.problem,
            )

        await self.once(("", f"drift of {drift.where}"[:200], live.claim.run_id), None, tell)

    # --- steps

    def step(
        self, scope: Scope, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        if self.live.is_stopping and self.live.tell_stopping():
            return self._last(functools.partial(self.stepper.begin, fn=fn, args=args, kwargs=kwargs))
        return self._carry(scope, self.stepper.begin(scope, fn, args, kwargs))

    def tool(
        self, scope: Scope, fn: Callable[..., Any], arguments: Mapping[str, Any] | None, tool_id: str | None
    ) -> Coroutine[Any, Any, Any]:
        if arguments is not None and not isinstance(arguments, Mapping):
            raise BadInput("arguments", f"a tool's arguments have names; {type(arguments).__name__} has none")

        def begin(scope: Scope) -> StepCall:
            doing = self.stepper.begin(scope, fn, (), dict(arguments or {}), step_id=tool_id)
            if doing.options.effect is None:
                check_retry(f"tool {doing.name}", doing.options, opaque)
                doing.effect = opaque
            return doing

        is_last = self.live.is_stopping and self.live.tell_stopping()
        return self._last(begin) if is_last else self._carry(scope, begin(scope))

    async def _last(self, begin: Callable[[Scope], StepCall]) -> Any:
        """The run must stop: refuse the call, unless the run cleans up. Cleaning has a scope of its own,
        because the next run may have to do it again."""
        await self.live.refuse()
        return await self._carry(self._cleaning, begin(self._cleaning))

    async def _carry(self, scope: Scope, doing: StepCall) -> Any:
        key = doing.key
        scope.begun()
        try:
            if scope.is_over:
                raise scope.over(doing.name)
            if self._owes:
                await self.settle()
            if scope.due_at is not None:
                self._keep_time(scope, doing)
            if self.live.limit is not None:
                self._refuse_too_long(self.live.limit, doing)
            if self.live.is_stopping:
                self.live.check()
            if self._budget.has_limit and self.past.find(doing.key) is None:
                await self.keep_budget()
            if doing.effect is None or doing.effect.effect_class in FREE:
                return await self.stepper.carry(doing)
            if doing.effect.effect_class is EffectClass.TRANSACTIONAL:
                from holdfast.engine.program.transactions import Transactions

                transactions = Transactions(self.live, self.stepper, self._effects)
                return await transactions.carry(doing, doing.effect)
            return await self._effects.carry(doing, doing.effect)
        finally:
            scope.ended(key)

    def _keep_time(self, scope: Scope, doing: StepCall) -> None:
        """Limit a step to the time that its turn has left."""
        assert scope.due_at is not None
        left = scope.due_at - self.live.clock.now()
        if left <= timedelta(0):
            raise TimeoutError(f"turn {scope.path} took longer than it may; step {doing.name} was not begun")
        doing.timeout = left if doing.timeout is None else min(left, doing.timeout)

    def _refuse_too_long(self, limit: RunLimit, doing: StepCall) -> None:
        """A step that may take longer than its run would be interrupted again and again."""
        if doing.timeout is not None and doing.timeout > limit.length and self.past.find(doing.key) is None:
            raise BadInput(
                "run_timeout",
                f"step {doing.name} may take {doing.timeout} (its timeout), and one run only {limit.length}: "
                'divide the step, or set a longer limit, such as @hf.task(run_timeout="30m")',
            )

    async def _park(self, effect: Effect) -> None:
        """Wait for a person's decision about an effect, and read the effect again."""

        def is_settled(tx: Tx) -> bytes | None:
            return None if tx.effects.get(effect.id).status is EffectStatus.UNKNOWN else b"null"

        await self.waits.park(f"review:{effect.id}", is_settled)
        key = (effect.scope, effect.name, effect.occurrence)

        def look(tx: Tx) -> tuple[Effect, Step | None]:
            step = tx.journal.find_step(effect.task_id, *key)
            return tx.effects.get(effect.id), None if step is None else opened_step(tx, step)

        found, step = await self.live.read(look)
        self.past.effects[key] = found
        if step is not None:
            self.past.put(key, step)

    # --- loops

    def begin_loop(
        self, name: str | None, most: int, plan: PlanKeeper | None, limit: timedelta | None = None
    ) -> OpenLoop:
        from holdfast.engine.program.loops import OpenLoop

        self.live.check()
        if (step := inside_step.get()) is not None:
            raise BadInput("loop", f"was begun inside step {step.name}; a step has no turns")
        scope = self.scope
        for one in self._open:
            if not scope.is_inside(one.scope or one.around):
                raise BadInput(
                    "loop",
                    f"{one.path} runs in another asyncio task; a run has one loop at a time: await that one "
                    "first, or run.spawn(…) a task for each",
                )
            if plan is not None and one.plan is plan:
                raise BadInput("plan", "this loop is inside a loop over the same plan")
        path = scope.loop(None if name is None else self._part(name))
        loop = OpenLoop(path, most, plan, scope, self.past.marks_of(path))
        loop.limit = limit
        known = self.past.loops.get(path)
        if known is not None:
            loop.seq = known.turns_done
            if known.is_over:
                loop.most = loop.seq
        self.memory.pass_loop(loop.marks, scope)
        self._open.append(loop)
        return loop

    def _part(self, name: str) -> str:
        """The name of a loop in the path of a scope, where a colon stands only before a number."""
        prefix = f"{self.scope.path}/" if self.scope.path else ""
        form = stored_form(name, lambda form: self.past.has_scope(prefix + as_part(form)))
        return as_part(form)

    def leave_loop(self, loop: OpenLoop, *, is_turn_done: bool) -> None:
        """The program has left the loop. Its last turn stays open until the turn around it ends: a replay
        goes through it again, to restore what it raised or left in local variables."""
        if loop not in self._open:
            return
        place = self._open.index(loop)
        for one in reversed(self._open[place:]):
            if one.scope is not None:
                one.around.changed |= one.scope.changed
                self._left.append(one)
                self._owes = True
        del self._open[place:]
        if loop.scope is not None and self.scope.is_inside(loop.scope):
            here.set(loop.around)
        if is_turn_done and loop.plan is not None and loop.item is not None:
            loop.plan.complete(loop.item.id)

    async def next_turn(self, loop: OpenLoop) -> bool:
        """Commit the turn that ends here and open the next; False when there is none.

        A turn that has come to its end is committed in a drain, too: so the checkpoint shows where the work
        stands, and a program that has no turn left may end.
        """
        if self.live.is_stopping and not self.live.may_finish:
            await self.live.refuse()
        if loop.is_over:
            return False
        if loop not in self._open:
            raise BadInput("loop", f"{loop.path} was left; begin a new one")
        for one in self._open[self._open.index(loop) + 1 :]:
            # The program still holds its iterator, but an outer loop goes on: it is over.
            self.leave_loop(one, is_turn_done=True)
        if self._owes and (loop.scope is None or self._has_cut):
            await self.settle()
        if loop.scope is not None:
            await self._commit(loop)
        if loop.plan is not None and not loop.plan.is_saved:
            await self._save()
        # A loop that was left at an item begins with that item again.
        item = None if loop.plan is None else loop.plan.find(loop.marks.item) or loop.plan.next()
        if loop.seq >= loop.most or (loop.plan is not None and item is None):
            loop.item = item
            loop.is_over = True
            self._open.remove(loop)
            return False
        if self.live.is_stopping:
            await self.live.refuse()
        self._open_turn(loop, item)
        return True

    def _open_turn(self, loop: OpenLoop, item: PlanItem | None) -> None:
        if loop.plan is not None and item is not None:
            loop.item = item
            loop.marks.item = None
            loop.plan.begun = item.id
        loop.seq += 1
        loop.began_at = self.live.clock.now()
        path = f"{loop.path}:{loop.turn}"
        loop.scope = Scope(path, self.past.ops_of(path), around=loop.around, child=self._child)
        here.set(loop.scope)
        loop.scope.has_loops = any(one.startswith(f"{path}/") for one in self.past.loops)
        loop.scope.due_at = None if loop.limit is None else loop.began_at + loop.limit

    async def _commit(self, loop: OpenLoop) -> None:
        """Commit a turn: its steps are summed up, and what it appended is durable."""
        live, scope = self.live, loop.scope
        assert scope is not None
        await scope.until_idle()
        now = live.clock.now()
        if loop.plan is not None and loop.item is not None:
            loop.plan.complete(loop.item.id)
        is_over = loop.seq >= loop.most or (loop.plan is not None and loop.plan.next() is None)
        save, after = self._saving(now, loop)
        finished, kept = self._finished(loop, now, self._marks_of(loop, is_over=is_over))

        def commit_turn(tx: Tx) -> None:
            tx.journal.require(live.claim)
            save(tx)
            tx.turns.commit(finished, scope.path, is_over=is_over, has_loops=scope.has_loops, kept=kept)
            live.note_progress(tx, now)
            if live.task.campaign_id is not None:
                tell_item_progress(tx, live.task, now=now, last_action=_last_action(finished))

        await live.write(commit_turn)
        after()
        if self.plan is not None and finished.marks is not None:
            self.plan.recorded_shape = finished.marks.plan
        scope.is_over = True
        loop.around.changed |= scope.changed
        loop.scope = None
        here.set(loop.around)
        self._left = [one for one in self._left if not one.around.is_within(scope.path)]
        self.past.close(scope.path)

    def _marks_of(self, loop: OpenLoop, *, is_over: bool) -> TurnMarks | None:
        """Where the program stands when the turn has committed, for a fork; None for turns inside others."""
        if loop.around is not self.root:
            return None
        self.past.loops[loop.path] = LoopPosition(loop=loop.path, turns_done=loop.seq, is_over=is_over)
        loops = {one.path: (one.seq - 1, False) for one in self._left if one.around is self.root}
        for path, known in self.past.loops.items():
            if "/" not in path and path not in loops:
                loops[path] = (known.turns_done, known.is_over)
        lists, values = self.memory.standing()
        keeper = self.plan
        return TurnMarks(
            lists=lists,
            loops=loops,
            ops=self.root.ops_done,
            steps=self.past.count(""),
            values=values,
            plan="" if keeper is None else keeper.shape,
            items=() if keeper is None or keeper.recorded_shape == keeper.shape else keeper.plan.items,
        )

    def _finished(
        self, loop: OpenLoop, now: datetime, marks: TurnMarks | None = None
    ) -> tuple[FinishedTurn, KeptSteps | None]:
        """The turn, and what it keeps of its steps for people."""
        from holdfast.engine.program.turn_summaries import sum_up

        assert loop.scope is not None
        assert loop.began_at is not None
        live, path = self.live, loop.scope.path
        steps, kept = sum_up(
            self.past.within(path), path, keep_bytes=live.place.keep_bytes, sealing=live.sealing
        )
        finished = FinishedTurn(
            task_id=self.live.claim.task_id,
            loop=loop.path,
            seq=loop.seq,
            turn=loop.turn,
            run_id=self.live.claim.run_id,
            steps=steps,
            began_at=loop.began_at,
            ended_at=now,
            marks=marks,
        )
        return finished, kept

    def _saving(
        self, now: datetime, closing: OpenLoop | None
    ) -> tuple[Callable[[Tx], None], Callable[[], None]]:
        """The part of a write that makes everything durable, and what to do in memory after it."""
        claim, keeper, progress = self.live.claim, self.plan, self.progress
        task = self.live.task
        loops: dict[str, Marks] = {}
        for loop in self._left:
            if loop.item is not None and loop.marks.item != loop.item.id:
                loop.marks.item = loop.item.id
                loops[loop.path] = loop.marks
        path = None
        if closing is not None and closing.scope is not None:
            path = closing.scope.path
            marks = self.memory.marks_after(closing.marks, closing.scope)
            if marks != closing.marks:
                closing.marks = loops[closing.path] = marks
        flush = self.memory.flush(now=now, closing=path, loops=loops)
        plan = None if keeper is None or keeper.is_saved else keeper.plan

        def save(tx: Tx) -> None:
            flush.apply(tx, claim.task_id)
            if plan is not None:
                tx.journal.save_plan(claim, plan, now=now)
            if progress is not None:
                tx.tasks.save_progress(claim.task_id, claim.run_id, claim.fence, progress, now=now)
            if task.campaign_id is not None and (plan is not None or progress is not None):
                tell_item_progress(tx, task, now=now, plan=plan, progress=progress)

        def after() -> None:
            self.memory.flushed(flush)
            if keeper is not None and keeper.plan is plan:
                keeper.is_saved = True
            if self.progress is progress:
                self.progress = None

        return save, after

    # --- the end

    async def until_idle(self) -> None:
        """Until no step is in flight: a program may begin steps that it does not await."""
        for loop in (*self._left, *self._open):
            if loop.scope is not None:
                await loop.scope.until_idle()
        await self.root.until_idle()

    @property
    def has_doubts(self) -> bool:
        """Whether an effect is still open, and the program has ended without calling it again."""
        return any(effect.status is EffectStatus.INTENT for effect in self.past.effects.values())

    def ending(self) -> Callable[[Tx], None] | None:
        """What must be durable together with a good end: the turns that are open, and everything appended."""
        now = self.live.clock.now()
        turns = [
            (*self._finished(loop, now), loop.scope)
            for loop in (*self._left, *self._open)
            # Turns inside of it end with it.
            if loop.scope is not None and loop.around is self.root
        ]
        for loop in self._open:
            if loop.plan is not None and loop.item is not None:
                loop.plan.complete(loop.item.id)
        if not (turns or self._is_touched or self.progress):
            return None
        save, _ = self._saving(now, None)
        task = self.live.task

        def end(tx: Tx) -> None:
            save(tx)
            for turn, kept, scope in turns:
                tx.turns.commit(turn, scope.path, is_over=True, has_loops=scope.has_loops, kept=kept)
                if task.campaign_id is not None:
                    tell_item_progress(tx, task, now=now, last_action=_last_action(turn))

        return end

    def evidence(self) -> Callable[[Tx], None] | None:
        """What the program had appended, kept as evidence of a bad end."""
        if not self._is_touched:
            return None
        try:
            return self._saving(self.live.clock.now(), None)[0]
        except BadInput:
            return None  # it cannot be stored, which may be why we are here

    # --- the plan

    def make_plan(self, items: tuple[PlanItem, ...]) -> PlanKeeper:
        """The plan of the task: the stored one, merged with the program's own list if that has changed."""
        from holdfast.engine.program.loops import PlanKeeper

        ids = tuple(item.id for item in items)
        if self.plan is not None:
            if ids != self._given:
                raise BadInput("plan", "a task has one plan; change it with plan.replan([…])")
            return self.plan
        given, stored = Plan(items=items), self.past.plan
        scope, before = self.memory.begin_op("plan")
        keeper = PlanKeeper(given if stored is None else stored, is_saved=stored is not None)
        if before is None:
            self.memory.note(scope, "plan", msgspec.Raw(msgspec.json.encode(ids)))
        elif (first := msgspec.json.decode(before, type=tuple[str, ...])) != ids:
            if stored is not None and {item.id for item in stored.items} == set(first):
                done = [item for item in stored.items if item.is_done]
                known = {item.id for item in done}
                keeper.replan((*done, *(item for item in items if item.id not in known)))
                what = "what had not begun follows the program"
            else:
                what = "it was planned anew since, so the stored plan holds"
            says = f"was {', '.join(first)}, and the program says {', '.join(ids)}; {what}"
            self._drifted(Drift("plan", says))
            scope.ops[scope.ops_done - 1] = ScopeChange("plan", msgspec.Raw(msgspec.json.encode(ids)))
            self.memory.touch(scope)
        for item_id in self.skipped:
            keeper.complete(item_id)
        self._given, self.plan = ids, keeper
        return keeper

    def replan(self, change: Callable[[], tuple[PlanItem, ...]]) -> None:
        """Change the plan once; a replay does not change it again."""
        assert self.plan is not None
        scope, before = self.memory.begin_op("plan")
        if before is None:
            self.plan.replan(change())
            self.memory.note(scope, "plan", msgspec.Raw(b"null"))

    # --- the budget

    def spend(self, cost: float) -> float:
        spent = self.memory.value(SPENT, 0.0, float)
        self._budget.spent = spent.set(spent.get() + cost)
        return self._budget.spent

    async def keep_budget(self) -> None:
        """If the budget is used up, ask a person before the task goes on."""
        await self._budget.keep(self.waits)


def _last_action(turn: FinishedTurn) -> str:
    """What a turn did last: its last step, or the turn itself."""
    return turn.steps[-1].name if turn.steps else f"{turn.loop}:{turn.turn}"
