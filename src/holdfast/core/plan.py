"""Plan, PlanItem and Cursor: what is done, what is next."""

from __future__ import annotations

import hashlib

import msgspec

from holdfast.core.errors import BadInput


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """The place in a plan: last step done, next step to do."""

    last_completed: str | None = None
    next_step: str | None = None


class PlanItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    title: str
    is_done: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The ordered steps of a task, as far as they are known."""

    items: tuple[PlanItem, ...]

    @property
    def cursor(self) -> Cursor:
        done = [item.id for item in self.items if item.is_done]
        ahead = [item.id for item in self.items if not item.is_done]
        return Cursor(
            last_completed=done[-1] if done else None,
            next_step=ahead[0] if ahead else None,
        )

    @property
    def shape(self) -> str:
        """A digest of the items and their order, independent of which are done."""
        text = "\0".join(part for item in self.items for part in (item.id, item.title))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def complete(self, item_id: str) -> Plan:
        """The plan with that item done; completing it twice changes nothing."""
        if all(item.id != item_id for item in self.items):
            raise BadInput("item", f"{item_id!r} is not in the plan")
        return Plan(
            items=tuple(
                msgspec.structs.replace(item, is_done=True) if item.id == item_id else item
                for item in self.items
            )
        )
