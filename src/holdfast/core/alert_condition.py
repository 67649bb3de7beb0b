"""AlertCondition: an expression over named figures, checked so strictly that it is harmless; pure."""

from __future__ import annotations

import ast
import difflib
import re
import warnings
from enum import StrEnum

import msgspec

from holdfast.core.errors import BadInput

MAX_CHARS = 500
MAX_DEPTH = 20
MAX_PARTS = 100
MAX_ARGUMENTS = 8
# More than any figure, so that products of many of them stay small numbers.
MAX_NUMBER = 1e12
EXAMPLE = 'such as "failed_count / total_count > 0.05"'


class FigureScope(StrEnum):
    """What a figure is about: each running campaign, or the whole ledger."""

    CAMPAIGN = "campaign"
    LEDGER = "ledger"


class Figure(msgspec.Struct, frozen=True):
    """A number that conditions may name."""

    name: str
    scope: FigureScope
    meaning: str


_CAMPAIGN, _LEDGER = FigureScope.CAMPAIGN, FigureScope.LEDGER

# In the order of the table in docs/guides/alerts.md; a test compares the two.
FIGURES: tuple[Figure, ...] = (
    Figure("total_count", _CAMPAIGN, "Items in all phases: 400 items in 2 phases are 800"),
    Figure("done_count", _CAMPAIGN, "Those that are done"),
    Figure("failed_count", _CAMPAIGN, "Those that failed"),
    Figure("running_count", _CAMPAIGN, "Those that run"),
    Figure("pending_count", _CAMPAIGN, "Those that wait to be started"),
    Figure("paused_count", _CAMPAIGN, "Those that are paused"),
    Figure("percent", _CAMPAIGN, "How much is done, from 0 to 100"),
    Figure("failed_percent", _CAMPAIGN, "How many of those that have ended failed, from 0 to 100"),
    Figure("rate_per_hour", _CAMPAIGN, "How many were done in the last hour, or since the start, per hour"),
    Figure(
        "no_progress_for_minutes",
        _CAMPAIGN,
        "Since an item last started, saved a step, went on to a stage or ended; since the start if none has",
    ),
    Figure(
        "agent_heartbeat_age_minutes",
        _CAMPAIGN,
        "Since the last sign of life of the running agent that is silent for the longest; 0 without one",
    ),
    Figure(
        "last_checkpoint_age_minutes",
        _CAMPAIGN,
        "Since the last checkpoint of the campaign; since the start if there is none",
    ),
    Figure("running_for_minutes", _CAMPAIGN, "Since the campaign was first started"),
    Figure("queued_tasks", _LEDGER, "Tasks that wait for a worker"),
    Figure("running_tasks", _LEDGER, "Tasks that run"),
    Figure("waiting_tasks", _LEDGER, "Tasks that wait for a time, a message, a person or other tasks"),
    Figure("oldest_queued_minutes", _LEDGER, "How long the run that waits longest for a worker has waited"),
    Figure(
        "oldest_waiting_minutes",
        _LEDGER,
        "How long the oldest open question or review has waited for a person",
    ),
    Figure(
        "needs_review_count", _LEDGER, "Tasks with an effect of unknown outcome that a person must review"
    ),
    Figure("open_questions", _LEDGER, "Open questions of tasks; counted up to 100"),
    Figure(
        "failed_deliveries", _LEDGER, "Answers and notices that could not be delivered; counted up to 100"
    ),
    Figure("running_campaigns", _LEDGER, "Campaigns that run"),
)
SCOPE_OF = {figure.name: figure.scope for figure in FIGURES}
FUNCTIONS = ("abs", "min", "max", "round")

# Anything else, such as quotes, brackets and attribute names with digits, is refused before it is parsed.
_ALLOWED_SIGNS = re.compile(r"[A-Za-z0-9_ .,()+\-*/%<>=!]*\Z")
_SPACES = re.compile(r"[ \t\r\n]+")
_NUMBERS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
_COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
_DIVISIONS = (ast.Div, ast.FloorDiv, ast.Mod)


class AlertCondition(msgspec.Struct, frozen=True, kw_only=True):
    """A checked condition: its text, the figures that it names, and the divisors in it."""

    text: str
    names: frozenset[str]
    # Each is itself an expression; one that is always zero is refused.
    divisors: tuple[str, ...] = ()

    @property
    def scope(self) -> FigureScope:
        """Whether it is evaluated for each running campaign, or once for the whole ledger."""
        of_campaign = any(SCOPE_OF[name] is FigureScope.CAMPAIGN for name in self.names)
        return FigureScope.CAMPAIGN if of_campaign else FigureScope.LEDGER


def check_condition(field: str, text: object) -> AlertCondition:
    """The condition, if it compares figures and does nothing else. Raises BadInput with the fix."""
    if not isinstance(text, str) or not text.strip():
        raise BadInput(field, f"write a comparison of figures, {EXAMPLE}")
    text = _SPACES.sub(" ", text).strip(" ")
    if len(text) > MAX_CHARS:
        raise BadInput(field, f"it has {len(text)} characters; at most {MAX_CHARS} are allowed")
    if not _ALLOWED_SIGNS.match(text):
        sign = next(one for one in text if not _ALLOWED_SIGNS.match(one))
        raise BadInput(
            field, f"{sign!a} is not allowed; use figures, numbers, comparisons, and, or, not, + - * / // %"
        )
    body = _parse(field, text)
    checker = _Checker(field)
    if not checker.is_truth(body, 1):
        raise BadInput(field, f"it is a number, not true or false; compare it with another, {EXAMPLE}")
    if not checker.names:
        raise BadInput(field, f"it names no figure, so it never changes; name one, {EXAMPLE}")
    return AlertCondition(text=text, names=frozenset(checker.names), divisors=tuple(checker.divisors))


def _parse(field: str, text: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            # The parser warns of what is refused below anyway, such as a number that touches a word.
            warnings.simplefilter("ignore")
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = f" at character {error.offset}" if isinstance(error, SyntaxError) and error.offset else ""
        raise BadInput(
            field, f"it cannot be read{place}; write a comparison of figures, {EXAMPLE}"
        ) from error


class _Checker:
    """Walks through one expression, and refuses every part that is not on the list."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._parts = 0
        self.names: set[str] = set()
        self.divisors: list[str] = []

    def is_truth(self, node: ast.expr, depth: int) -> bool:
        """Check this part and all below it; whether it is true or false, and not a number."""
        self._parts += 1
        if depth > MAX_DEPTH or self._parts > MAX_PARTS:
            raise self._refused("it is too complex; write two rules instead")
        below = depth + 1
        match node:
            case ast.BoolOp(values=values):
                for value in values:
                    if not self.is_truth(value, below):
                        raise self._refused("`and` and `or` join comparisons, not numbers")
                return True
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                if not self.is_truth(operand, below):
                    raise self._refused("`not` needs a comparison, not a number")
                return True
            case ast.Compare(left=left, ops=ops, comparators=others):
                if not all(isinstance(one, _COMPARISONS) for one in ops):
                    raise self._refused("compare with <, <=, >, >=, == and != only")
                self._check_numbers([left, *others], below)
                return True
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
                self._check_numbers([operand], below)
            case ast.BinOp(left=left, op=op, right=right):
                if not isinstance(op, _NUMBERS):
                    raise self._refused("calculate with + - * / // and % only")
                self._check_numbers([left, right], below)
                if isinstance(op, _DIVISIONS):
                    self.divisors.append(ast.unparse(right))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
                self._check_call(name, arguments, below)
            case ast.Name(id=name):
                self._check_name(name)
            case ast.Constant(value=bool()):
                raise self._refused("write comparisons instead of True and False")
            case ast.Constant(value=int() | float() as number):
                if abs(number) > MAX_NUMBER:  # infinity, too
                    raise self._refused(f"a number is too large; the largest is {MAX_NUMBER:.0f}")
            case ast.Call():
                raise self._refused(f"call only {', '.join(FUNCTIONS)}, each with numbers")
            case _:
                raise self._refused(
                    "it has a part that is neither a figure, a number, a comparison nor a calculation"
                )
        return False

    def _check_numbers(self, nodes: list[ast.expr], depth: int) -> None:
        for node in nodes:
            if self.is_truth(node, depth):
                raise self._refused("a comparison is not a number; join comparisons with `and` or `or`")

    def _check_call(self, name: str, arguments: list[ast.expr], depth: int) -> None:
        most = {"abs": 1, "round": 1}.get(name, MAX_ARGUMENTS)
        least = 1 if most == 1 else 2
        if not least <= len(arguments) <= most:
            needed = "one number" if most == 1 else f"{least} to {most} numbers"
            raise self._refused(f"{name} takes {needed}")
        self._check_numbers(arguments, depth)

    def _check_name(self, name: str) -> None:
        if name not in SCOPE_OF:
            near = difflib.get_close_matches(name, SCOPE_OF, n=1)
            fix = f"did you mean {near[0]}?" if near else f"the figures are {', '.join(SCOPE_OF)}"
            raise self._refused(f"there is no figure {name[:60]}: {fix}")
        self.names.add(name)

    def _refused(self, problem: str) -> BadInput:
        return BadInput(self._field, problem)
