"""The phases of a run in memory: every pair, and what each of them means for the program and the claim."""

from __future__ import annotations

from itertools import product

import pytest

from holdfast.core.errors import IllegalMove
from holdfast.engine.program.run_phase import HELD, PHASE_MOVES, PROGRAM_OVER, RunPhase, StopReason, move

PAIRS = list(product(RunPhase, RunPhase))

# Written out once more, by hand: a slip in the table must not go unnoticed.
ALLOWED = {
    ("running", "stopping"),
    ("running", "left_over"),
    ("running", "given_up"),
    ("stopping", "told"),
    ("stopping", "left_over"),
    ("stopping", "given_up"),
    ("told", "left_over"),
    ("told", "given_up"),
    ("left_over", "over"),
    ("given_up", "over"),
    ("given_up", "abandoned"),
}


@pytest.mark.parametrize(("phase", "to"), [pair for pair in PAIRS if pair in ALLOWED])
def test_a_run_in_memory_moves_along_the_table(phase: RunPhase, to: RunPhase) -> None:
    assert move("run_1", phase, to) is to


@pytest.mark.parametrize(("phase", "to"), [pair for pair in PAIRS if pair not in ALLOWED])
def test_a_run_in_memory_moves_no_other_way(phase: RunPhase, to: RunPhase) -> None:
    says = f"is {phase} already" if phase is to else f"is {phase} and cannot become {to}"
    with pytest.raises(IllegalMove, match=f"run in memory run_1 {says}"):
        move("run_1", phase, to)


def test_the_table_has_a_row_for_every_phase() -> None:
    assert set(PHASE_MOVES) == set(RunPhase)
    assert {phase for phase, ways in PHASE_MOVES.items() if not ways} == {RunPhase.OVER, RunPhase.ABANDONED}


def test_a_claim_that_is_gone_never_comes_back() -> None:
    gone = set(RunPhase) - HELD

    assert all(PHASE_MOVES[phase] <= gone for phase in gone)


def test_a_program_that_is_over_never_runs_again() -> None:
    assert all(PHASE_MOVES[phase] <= PROGRAM_OVER for phase in PROGRAM_OVER)


@pytest.mark.parametrize(("first", "later"), list(product(StopReason, StopReason)))
def test_the_first_reason_to_stop_stays_but_a_cancel_beats_the_others(
    first: StopReason, later: StopReason
) -> None:
    kept = first.then(later)

    assert kept is (StopReason.CANCELLED if later is StopReason.CANCELLED else first)
