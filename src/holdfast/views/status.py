"""StatusView: one screen of how things stand: gateway, sessions, tasks, what waits for a person."""

from __future__ import annotations

import msgspec

from holdfast.views.gateway import GatewayView, RestartView


class StatusView(msgspec.Struct, frozen=True, kw_only=True):
    """How things stand in one home."""

    home: str
    store: str
    # Null when none answers; `why_no_gateway` says what is known.
    gateway: GatewayView | None
    why_no_gateway: str | None
    tasks: dict[str, int] = {}
    # In which something is being answered; of this and the next six at most a hundred are counted.
    busy_sessions: int = 0
    # So many of those wait for an answer or a review by a person.
    sessions_waiting_for_person: int = 0
    open_reviews: int = 0
    # Of tasks that have not ended, as `questions list` has them.
    open_questions: int = 0
    # Answers and notices that were given up, as `deliveries list` has them.
    failed_deliveries: int = 0
    # Resumes that failed, and wait for `checkpoints retry`.
    failed_resumes: int = 0
    tasks_failed_in_last_day: int = 0
    last_restart: RestartView | None = None
