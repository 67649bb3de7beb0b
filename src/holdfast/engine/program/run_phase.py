"""RunPhase and StopReason: how far a run is in the memory of its worker, and why it must stop."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from holdfast.core.errors import IllegalMove


class RunPhase(StrEnum):
    """What the program of a run may still do, and whether this worker still holds the claim."""

    # The program runs.
    RUNNING = "running"
    # The run must stop; the program does not know yet. In a drain it may still come to its own end.
    STOPPING = "stopping"
    # One of the program's calls was refused: what it does from now on is unwinding, not its end.
    TOLD = "told"
    # The program is over, but the ledger does not know how; the claim is still held and renewed.
    LEFT_OVER = "left_over"
    # The claim is gone: the run ended, waits, was paused, or another worker has it. Nothing is written.
    GIVEN_UP = "given_up"
    # The program is over, and the claim is gone.
    OVER = "over"
    # The claim is gone, and the program does not stop: it was closed as a generator is.
    ABANDONED = "abandoned"


P = RunPhase

# In memory only: the ledger knows the status of a run (core/transitions.py), and never its phase.
PHASE_MOVES: Mapping[RunPhase, frozenset[RunPhase]] = {
    P.RUNNING: frozenset({P.STOPPING, P.LEFT_OVER, P.GIVEN_UP}),
    P.STOPPING: frozenset({P.TOLD, P.LEFT_OVER, P.GIVEN_UP}),
    P.TOLD: frozenset({P.LEFT_OVER, P.GIVEN_UP}),
    P.LEFT_OVER: frozenset({P.OVER}),
    P.GIVEN_UP: frozenset({P.OVER, P.ABANDONED}),
    P.OVER: frozenset(),
    P.ABANDONED: frozenset(),
}

# The worker still holds the claim, and the ledger waits for word of the run.
HELD = frozenset({P.RUNNING, P.STOPPING, P.TOLD, P.LEFT_OVER})
# The program is over, or as good as that: every call raises RunOver.
PROGRAM_OVER = frozenset({P.LEFT_OVER, P.OVER, P.ABANDONED})


def move(run_id: str, phase: RunPhase, to: RunPhase) -> RunPhase:
    """The new phase, if the table allows it. Raises IllegalMove."""
    if to not in PHASE_MOVES[phase]:
        raise IllegalMove("run in memory", run_id, phase.value, to.value)
    return to


class StopReason(StrEnum):
    """Why a run must stop here. Programs see it as the text of Stopping."""

    # The process is about to end: the run is paused, and the next process resumes it.
    DRAINING = "draining"
    CANCELLED = "cancelled"
    # Another worker has it.
    CLAIM_LOST = "claim lost"
    # This worker could not renew the lease in time; the run is released and tried again.
    LEASE_LAPSED = "lease lapsed"
    # The run is released and tried again.
    CANNOT_SEAL = "there is no key to seal with"
    LEDGER_AWAY = "the ledger is away"
    LEDGER_DAMAGED = "the ledger is damaged"
    # For a time, an answer, a message, a child or a review; it holds no claim meanwhile.
    WAITING = "waiting"
    # It has used the time that a run may take: it is saved and woken later, or times out.
    RUN_TIMEOUT = "the time of the run is used up"
    # Something failed that is no failure of the program's own.
    CRASHED = "crashed"

    def then(self, later: StopReason) -> StopReason:
        """The reason to keep when a later one comes: the first, but a cancel beats the others."""
        return later if later is StopReason.CANCELLED else self
