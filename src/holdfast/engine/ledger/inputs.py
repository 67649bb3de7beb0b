"""Checks what callers give to the engine before anything is written: claims, times, choices."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import TypeVar, cast

from holdfast.core.claim import Claim
from holdfast.core.errors import BadInput

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
