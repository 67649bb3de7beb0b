"""StatusView: one screen of how things stand: gateway, sessions, tasks, what waits for a person."""

from __future__ import annotations

import msgspec

from holdfast.views.gateway import GatewayView, HoldView, RestartView


class OverviewView(msgspec.Struct, frozen=True, kw_only=True):
    """How many there are of what a person may have to look at; the fields are those of StatusView."""

    tasks: dict[str, int]
    waiting: dict[str, int]
    messages_wait_for: list[str]
    clock_problem: str | None
    busy_sessions: int
    sessions_waiting_for_person: int
    open_reviews: int
    open_questions: int
    failed_deliveries: int
    owed_deliveries: int
    failed_resumes: int
    tasks_failed_in_last_day: int
    last_restart: RestartView | None


class StatusView(msgspec.Struct, frozen=True, kw_only=True):
    """How things stand in one home."""

    # The home, or the address of the gateway that HOLDFAST_URL names.
    home: str
    store: str
    # Null when none answers; `why_no_gateway` says what is known.
    gateway: GatewayView | None
    why_no_gateway: str | None
    tasks: dict[str, int] = {}
    # How many of the newest hundred in each status wait for what: an `answer`, a `review`, `mail`, the end of
    # a `sleep`, a `child`, `children` or a `boot`, a `resume`, the next attempt after a failure (`retry`),
    # or, after a minute in the queue, a `worker`; a suspect for one that carries nothing else (`alone`).
    waiting: dict[str, int] = {}
    # Agents for which messages wait that no gateway has taken.
    messages_wait_for: list[str] = []
    # In which something is being answered; of this and the next seven at most a hundred are counted.
    busy_sessions: int = 0
    # So many of those wait for an answer or a review by a person.
    sessions_waiting_for_person: int = 0
    open_reviews: int = 0
    # Of tasks that have not ended, as `questions list` has them.
    open_questions: int = 0
    # Answers and notices that were given up, as `deliveries list` has them.
    failed_deliveries: int = 0
    # What is still to be sent, as `deliveries list --owed` has it.
    owed_deliveries: int = 0
    # Resumes that failed, and wait for `checkpoints retry`.
    failed_resumes: int = 0
    # Those that timed out or are lost included.
    tasks_failed_in_last_day: int = 0
    # That the wall clock has jumped, so that schedules and deletions wait; null when it has not.
    clock_problem: str | None = None
    # Why values that hold a secret cannot be stored or read here; null when they can.
    key_problem: str | None = None
    # Why the ledger cannot be read here, or cannot be used by the gateway; null when it can.
    ledger_problem: str | None = None
    # False when it cannot be read here: then nothing was counted.
    is_counted: bool = True
    # Why interrupted work is not resumed, or would not be by the next gateway, each with what ends that.
    holds: list[HoldView] = []
    last_restart: RestartView | None = None
