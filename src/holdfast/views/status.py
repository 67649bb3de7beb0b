"""OverviewView and StatusView: one screen with the gateway, sessions, tasks, and what waits for a person."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.views.campaigns import CampaignLineView
from holdfast.views.gateway import GatewayView, HoldView, RestartView


class OldestView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The oldest task that waits."""

    task_id: str
    name: str
    # `queued`, `waiting`, `needs_review` or `paused`.
    status: str
    # The kind of what it waits for, as in `waiting`; null if it only waits for its turn.
    waits_for: str | None
    created_at: datetime


class OverviewView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Counts of what a person may have to look at; the fields are those of StatusView."""

    line: str
    tasks: dict[str, int]
    waiting: dict[str, int]
    oldest_waiting: OldestView | None
    messages_wait_for: list[str]
    clock_problem: str | None
    busy_sessions: int
    sessions_waiting_for_person: int
    open_reviews: int
    open_questions: int
    failed_deliveries: int
    owed_deliveries: int
    failed_resumes: int
    blocked_flows: int
    raised_alerts: int
    tasks_failed_in_last_day: int
    running_campaigns: list[CampaignLineView]
    campaigns: dict[str, int]
    last_restart: RestartView | None


class StatusView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The status of one home."""

    # The home, or the address in HOLDFAST_URL.
    home: str
    store: str
    # Null if none answers; then `why_no_gateway` says why.
    gateway: GatewayView | None
    why_no_gateway: str | None
    # What tasks do now, in one line; empty if nothing was counted.
    line: str = ""
    tasks: dict[str, int] = {}
    # What tasks wait for, counted among the newest hundred in each status: an `answer`, a `review`, `mail`,
    # the end of a `sleep`, a `child`, `children` or a `boot`, a `resume`, the next attempt after a failure
    # (`retry`), or, after a minute in the queue, a `worker`; after repeated crashes, an idle one (`alone`).
    waiting: dict[str, int] = {}
    # The oldest task that is queued, waits, needs a review or is paused; null if there is none.
    oldest_waiting: OldestView | None = None
    # Agents with messages that no gateway has taken.
    messages_wait_for: list[str] = []
    # Sessions with an answer in progress; this and the next seven are counted up to a hundred.
    busy_sessions: int = 0
    # Of those, the ones that wait for an answer or a review by a person.
    sessions_waiting_for_person: int = 0
    open_reviews: int = 0
    # Open questions of tasks that have not ended, as in `questions list`.
    open_questions: int = 0
    # Failed answers and notices, as in `deliveries list`.
    failed_deliveries: int = 0
    # Pending answers and notices, as in `deliveries list --owed`.
    owed_deliveries: int = 0
    # Failed resumes that wait for `checkpoints retry`.
    failed_resumes: int = 0
    # Includes tasks that timed out or are lost.
    tasks_failed_in_last_day: int = 0
    # Flows that go on only after `tasks flow retry`, or when their controller decides.
    blocked_flows: int = 0
    # Alerts that are raised and not silenced, as in `alerts list`.
    raised_alerts: int = 0
    # The newest three, each with how far it is.
    running_campaigns: list[CampaignLineView] = []
    # How many campaigns are in each status.
    campaigns: dict[str, int] = {}
    # A jump of the wall clock, until which schedules and deletions wait; null if there is none.
    clock_problem: str | None = None
    # Why values with secrets cannot be stored or read here; null if they can.
    key_problem: str | None = None
    # Why the ledger cannot be read here, or not be used by the gateway; null if it can.
    ledger_problem: str | None = None
    # False if it cannot be read here; then nothing was counted.
    is_counted: bool = True
    # Why interrupted work is held, now or by the next gateway, each with its remedy.
    holds: list[HoldView] = []
    last_restart: RestartView | None = None
