"""What callers hand to the engine, checked before anything is written: claims, moments, choices, plans."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import TypeVar, cast

from holdfast.core.claim import Claim
from holdfast.core.errors import BadInput
from holdfast.core.payload import check_name, check_words, encode_payload
from holdfast.core.plan import Plan, PlanItem

MAX_PLAN_BYTES = 1024 * 1024

Choice = TypeVar("Choice", bound=StrEnum)


def check_claim(value: object) -> Claim:
    if not isinstance(value, Claim):
        raise BadInput("claim", f"a claim is needed, not {type(value).__name__}")
    return value


def check_claims(values: object) -> list[Claim]:
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise BadInput("claims", f"a list of claims is needed, not {type(values).__name__}")
    return [check_claim(value) for value in values]


def check_moment(field: str, value: object) -> datetime:
    if not isinstance(value, datetime):
        raise BadInput(field, f"a moment is needed, not {type(value).__name__}")
    if value.tzinfo is None:
        raise BadInput(field, "a moment needs its time zone")
    return value


def check_choice(field: str, value: object, choices: type[Choice]) -> Choice:
    """One of the values of an enumeration, or its text."""
    try:
        return choices(cast(str, value))
    except ValueError:
        known = ", ".join(choice.value for choice in choices)
        raise BadInput(field, f"one of {known} is needed") from None


def check_plan(value: object) -> Plan:
    """A plan fit to be stored: bounded, its titles as they are, each item under an id of its own."""
    if not isinstance(value, Plan) or not isinstance(value.items, tuple):
        raise BadInput("plan", f"a plan is needed, not {type(value).__name__}")
    plan = Plan(items=tuple(_checked_item(item) for item in value.items))
    if len({item.id for item in plan.items}) != len(plan.items):
        raise BadInput("plan", "two items have the same id; give each its own")
    encode_payload("plan", plan, max_bytes=MAX_PLAN_BYTES)
    return plan


def _checked_item(item: object) -> PlanItem:
    if not isinstance(item, PlanItem):
        raise BadInput("plan", f"an item is needed, not {type(item).__name__}")
    return PlanItem(
        id=check_name("item", item.id), title=check_words("title", item.title), is_done=item.is_done is True
    )
