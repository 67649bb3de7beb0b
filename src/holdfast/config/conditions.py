"""Evaluates conditions of alert rules with simpleeval, and tries each one with sample figures."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.core.alert_condition import FIGURES, AlertCondition, check_condition
from holdfast.core.errors import BadInput, SettingsError

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"abs": abs, "min": min, "max": max, "round": round}
# What each figure is in each trial: none is zero, and all differ. So a divisor that is zero in all of them is
# always zero.
_TRIALS: tuple[dict[str, float], ...] = tuple(
    {figure.name: scale * (place + shift) for place, figure in enumerate(FIGURES, 1)}
    for scale, shift in ((1.0, 0.37), (17.3, 2.11), (0.29, 101.7))
)


class ConditionFailed(Exception):
    """A condition that cannot be evaluated with these figures."""


def evaluate(condition: AlertCondition, figures: Mapping[str, float]) -> bool:
    """Whether the condition is true of these figures. Raises ConditionFailed, for a division by zero."""
    return bool(_calculate(condition.text, {name: figures[name] for name in condition.names}))


def tried_condition(field: str, text: object) -> AlertCondition:
    """The condition, checked, and tried with sample figures. Raises BadInput with the fix."""
    condition = check_condition(field, text)
    for divisor in condition.divisors:
        if all(_is_zero(divisor, trial) for trial in _TRIALS):
            raise BadInput(field, f"it divides by {divisor[:60]}, which is always zero")
    for trial in _TRIALS:
        try:
            evaluate(condition, trial)
        except ConditionFailed as error:
            why = error
        else:
            return condition
    raise BadInput(field, f"it cannot be evaluated: {why}")


def _is_zero(divisor: str, trial: Mapping[str, float]) -> bool:
    try:
        return bool(_calculate(divisor, trial) == 0)
    except ConditionFailed:  # its own divisor is looked at by itself
        return False


def _calculate(text: str, names: Mapping[str, float]) -> Any:
    try:
        from simpleeval import InvalidExpression, SimpleEval
    except ModuleNotFoundError as error:
        raise SettingsError(
            "conditions of alerts cannot be read without simpleeval: pip install '.[gateway]' in a checkout"
        ) from error
    evaluator = SimpleEval(operators=_OPERATORS, functions=_FUNCTIONS, names=dict(names))
    try:
        found = evaluator.eval(text)
    except ZeroDivisionError as error:
        raise ConditionFailed(f"division by zero in {text[:200]}") from error
    except (ArithmeticError, ValueError, InvalidExpression) as error:
        raise ConditionFailed(f"{error} in {text[:200]}") from error
    if isinstance(found, float) and not math.isfinite(found):
        raise ConditionFailed(f"the numbers are too large in {text[:200]}")
    return found
