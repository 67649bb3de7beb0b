"""The budget of a task in steps, time and cost: when it is used up, a person decides whether it goes on."""

from __future__ import annotations

from holdfast.core.errors import Refused
from holdfast.core.ladder import Budget
from holdfast.engine.journal.scopes import TaskHistory
from holdfast.engine.program.live_run import LiveRun
from holdfast.engine.program.steps import StepRunner
from holdfast.engine.program.waits import Waits


class BudgetKeeper:
    """What one run has used of its task's budget."""

    def __init__(self, budget: Budget | None, live: LiveRun, past: TaskHistory, stepper: StepRunner) -> None:
        self._budget = budget
        self._live = live
        self._past = past
        self._stepper = stepper
        self._began_at = live.clock.now()
        self.spent = past.spent

    @property
    def has_limit(self) -> bool:
        return self._budget is not None

    async def keep(self, waits: Waits) -> None:
        """If the budget is used up, ask a person before the task goes on. Raises Refused if they say stop."""
        if self._budget is None:
            return
        past = self._past
        if past.steps_done is None:
            task_id = self._live.task.id
            heads = await self._live.read(lambda tx: tx.journal.heads([task_id]))
            saved = heads[task_id].steps_saved if task_id in heads else 0
            # Notes of waits and questions are not steps of the author.
            past.steps_done = saved - past.notes
        grants = 1
        while past.find(("", "budget", str(grants))) is not None:
            grants += 1
        used = self._used_up(self._budget, grants)
        if used is None:
            return
        payload = await waits.ask(
            ("", "budget", str(grants)),
            f"{self._live.task.name} has used its budget ({used}). Go on?",
            choices=("go on", "stop"),
            lasts=None,
            default=None,
            has_default=False,
        )
        if self._stepper.opened("budget", payload) != "go on":
            raise Refused(f"the budget is used up ({used}), and a person said stop")

    def _used_up(self, budget: Budget, grants: int) -> str | None:
        now = self._live.clock.now()
        since = self._live.task.started_at or self._began_at
        steps = (self._past.steps_done or 0) + self._stepper.saved
        if budget.steps is not None and steps >= budget.steps * grants:
            return f"{budget.steps * grants} steps"
        if budget.time is not None and now - since >= budget.time * grants:
            return str(budget.time * grants)
        if budget.cost is not None and self.spent >= budget.cost * grants:
            return f"a cost of {self.spent:g}"
        return None
