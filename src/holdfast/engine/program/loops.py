"""A loop that has begun, and the plan that it goes through, as the program changes them in memory."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.core.plan import Plan, PlanItem
from holdfast.engine.journal.scopes import Marks, Scope


class PlanKeeper:
    """The plan as the program changes it, until a turn makes the change durable."""

    def __init__(self, plan: Plan, *, is_saved: bool) -> None:
        self.plan = plan
        self.is_saved = is_saved
        self.begun: str | None = None
        self.shape = plan.shape
        # The shape whose items a turn of this run has recorded.
        self.recorded_shape = ""

    def replan(self, items: tuple[PlanItem, ...]) -> None:
        self.plan, self.is_saved = Plan(items=items), False
        self.shape = self.plan.shape

    def complete(self, item_id: str) -> None:
        self.begun = None
        if any(item.id == item_id and not item.is_done for item in self.plan.items):
            self.plan, self.is_saved = self.plan.complete(item_id), False

    def next(self) -> PlanItem | None:
        return next((item for item in self.plan.items if not item.is_done), None)

    def find(self, item_id: str | None) -> PlanItem | None:
        return next((item for item in self.plan.items if item.id == item_id), None)


class OpenLoop:
    """A loop that has begun, and the turn of it that is open."""

    def __init__(self, path: str, most: int, plan: PlanKeeper | None, around: Scope, marks: Marks) -> None:
        self.path = path
        self.most = most
        self.plan = plan
        self.around = around
        self.marks = marks
        self.limit: timedelta | None = None
        self.seq = 0
        self.is_over = False
        # Of the turn that is open.
        self.scope: Scope | None = None
        self.item: PlanItem | None = None
        self.began_at: datetime | None = None
        # Kept here if the program is a generator, which Python closes at some later time.
        self.iterator: object = None

    @property
    def turn(self) -> str:
        return str(self.seq) if self.item is None else self.item.id
