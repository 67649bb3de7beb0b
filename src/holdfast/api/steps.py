"""The steps of one task for the API and the CLI, a page at a time: also of finished turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.api.contract import EVERYTHING, Reach
from holdfast.api.pages import bad_token
from holdfast.api.params import NameText, PageSize, PageToken, Params, TargetText
from holdfast.core.errors import BadInput, HoldfastError
from holdfast.views.steps import StepLineView, StepPageView
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.core.program_records import FinishedTurn, KeptStep
    from holdfast.core.step import Step
    from holdfast.store.transaction import Tx

# The place, in a page token, of steps in the journal. No loop has this name: it has no `/` at its beginning.
_JOURNAL = "/"
# A page ends early if the results that it shows exceed this.
MAX_PAGE_BYTES = 4 * 1024 * 1024


class StepsAsked(Params, frozen=True, kw_only=True):
    """The steps of one task, in order."""

    task_id: TargetText
    # Only this turn: its number in the only loop, or `<loop>:<turn>`.
    turn: NameText | None = None
    # With each result as far as it is kept, instead of how it begins.
    full: bool = False
    # Begin near the end: with the newest turns, about half a page of them, and with all that is after them.
    newest: bool = False
    # Counts turns, and steps in the journal.
    limit: PageSize = 100
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


def read_steps(tx: Tx, asked: StepsAsked, *, reach: Reach = EVERYTHING) -> StepPageView:
    """A page of steps. Its size counts turns, and steps in the journal: the steps of a turn stay together."""
    return _StepReader(tx, reach.resolve(tx, asked.task_id), asked).read()


class _StepReader:
    """Reads one page."""

    def __init__(self, tx: Tx, task_id: str, asked: StepsAsked) -> None:
        self._tx = tx
        self._task_id = task_id
        self._asked = asked
        # Where the turns are: inside this scope; None for all.
        self._scope = None if asked.turn is None else _scope_of(tx, task_id, asked.turn)
        self._lines: list[StepLineView] = []
        self._problems: list[str] = []
        self._bytes = 0

    def read(self) -> StepPageView:
        asked, left = self._asked, self._asked.limit
        place, number, skip = _place_of(asked.page_token)
        if asked.newest and asked.page_token is None and self._scope is None:
            place, number = self._near_the_end()
        if place != _JOURNAL:
            turns = self._tx.turns.page(
                self._task_id, scope=self._scope, after=(place, number), limit=left + 1
            )
            for count, (loop, seq, turn) in enumerate(turns):
                if count == left or self._bytes > MAX_PAGE_BYTES:
                    last = turns[count - 1]
                    return self._page(f"{last[0]}:{last[1]}")
                if isinstance(turn, HoldfastError):
                    self._problems.append(one_line(f"turn {seq} of loop {loop}: {turn}"))
                else:
                    self._add_turn(turn)
            left, number, skip = left - len(turns), 0, 0
        return self._page(self._add_journal(number, skip, left))

    def _near_the_end(self) -> tuple[str, int]:
        """Where the newest turns of the last outermost loop begin."""
        loops = self._tx.turns.loops([self._task_id]).get(self._task_id, {})
        last = max(_outermost(one.loop for one in loops.values()), default=None)
        if last is None:
            return "", 0
        return last, max(0, loops[last].turns_done - max(1, self._asked.limit // 2))

    def _page(self, token: str | None) -> StepPageView:
        if self._scope is not None and not (self._lines or self._problems or self._asked.page_token):
            why = f"{self._task_id} has no turn {self._asked.turn!r:.80} with steps; its loops: "
            loops = self._tx.turns.loops([self._task_id]).get(self._task_id, {})
            shown = ", ".join(f"{one.loop} ({one.turns_done} done)" for one in loops.values())
            raise BadInput("turn", one_line(why + (shown or "none")))
        return StepPageView(
            task_id=self._task_id, steps=self._lines, next_page_token=token, problems=self._problems
        )

    def _add_turn(self, turn: FinishedTurn) -> None:
        if turn.sealed_steps:
            self._lines.append(StepLineView.of_sealed(turn))
            return
        kept: list[KeptStep] | None = []
        outcomes: dict[tuple[str, str, str], bytes] = {}
        # What is sealed has no preview with its turn.
        if self._asked.full or not all(step.preview for step in turn.steps):
            try:
                kept = self._tx.kept_steps.of_turn(turn)
                outcomes = self._outcomes(turn) if self._asked.full else {}
            except HoldfastError as error:
                self._problems.append(one_line(str(error)))
        scope = f"{turn.loop}:{turn.turn}"
        for place, step in enumerate(turn.steps):
            one = kept[place] if kept else None
            outcome = outcomes.get((scope + step.inside, step.name, step.occurrence))
            self._bytes += len((one and one.result) or b"") + len(outcome or b"")
            self._lines.append(StepLineView.of_summary(turn, step, one, outcome, is_sealed=kept is None))

    def _outcomes(self, turn: FinishedTurn) -> dict[tuple[str, str, str], bytes]:
        """The results of the effects of a turn: their records stay whole."""
        scopes = {f"{turn.loop}:{turn.turn}{step.inside}" for step in turn.steps if step.is_effect}
        done = (effect for scope in scopes for effect in self._tx.effects.past_of_scope(self._task_id, scope))
        return {effect.key: self._tx.blobs.open(effect.outcome) for effect in done if effect.outcome}

    def _add_journal(self, number: int, skip: int, limit: int) -> str | None:
        """The steps from this number on; the token of the next page."""
        if limit < 1:
            return f"{_JOURNAL}:0" if self._journal(0, 1) else None
        found = self._journal(number, skip + limit + 1)[skip:]
        for count, step in enumerate(found):
            if count == limit or self._bytes > MAX_PAGE_BYTES:
                shown = found[:count]
                same = sum(one.seq == shown[-1].seq for one in shown)
                before = skip if shown[-1].seq == number else 0
                return f"{_JOURNAL}:{shown[-1].seq}+{same + before}"
            result = self._tx.blobs.open(step.result)
            self._bytes += len(result)
            self._lines.append(StepLineView.of_step(step, result))
        return None

    def _journal(self, number: int, limit: int) -> list[Step]:
        return self._tx.journal.steps_from(self._task_id, number, scope=self._scope, limit=limit)


def _place_of(token: str | None) -> tuple[str, int, int]:
    """The loop and the number of the last turn; or the journal, a number, and how many steps of that number
    were shown."""
    if token is None:
        return "", 0, 0
    place, _, number = token.rpartition(":")
    number, _, skip = number.partition("+")
    if all(part.isascii() and part.isdigit() and len(part) < 19 for part in (number, skip or "0")):
        return place, int(number), int(skip or "0")
    raise bad_token(token)


def _scope_of(tx: Tx, task_id: str, turn: str) -> str:
    """The scope of a turn: `main:12`; also for `12` if the task has one loop."""
    if ":" in turn:
        return turn
    found = {one.loop for one in tx.turns.loops([task_id]).get(task_id, {}).values()}
    loops = _outermost(found) or _outermost(
        step.scope.rpartition(":")[0] for step in tx.journal.newest_steps(task_id, limit=10)
    )
    if len(loops) > 1:
        why = f"{task_id} has several loops; name one: {', '.join(f'{one}:{turn}' for one in sorted(loops))}"
        raise BadInput("turn", one_line(why))
    return f"{min(loops, default='turns')}:{turn}"


def _outermost(loops: Iterable[str]) -> set[str]:
    return {loop for loop in loops if loop and "/" not in loop}
