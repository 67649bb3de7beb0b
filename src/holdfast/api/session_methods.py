"""The methods of conversations."""

from __future__ import annotations

from holdfast.api import sessions
from holdfast.api.contract import READ
from holdfast.api.method_kinds import Method, audited, calls
from holdfast.views.sessions import SessionDetailView, SessionPageView, SpawnedView, TranscriptView
from holdfast.views.snapshot import SnapshotView

SESSION_METHODS: list[Method] = [
    calls(
        "sessions.page",
        READ,
        sessions.SessionsAsked,
        SessionPageView,
        sessions.page,
        "A page of sessions, most recently used first.",
    ),
    calls(
        "sessions.transcript",
        READ,
        sessions.HistoryAsked,
        TranscriptView,
        sessions.transcript,
        "The transcript of a session; can wait for new messages.",
    ),
    calls(
        "sessions.get",
        READ,
        sessions.SessionAsked,
        SessionDetailView,
        sessions.get,
        "One session with its last messages.",
    ),
    calls(
        "sessions.tasks",
        READ,
        sessions.SessionTasksAsked,
        SnapshotView,
        sessions.tasks,
        "What the tasks of a session do now, for an agent.",
        is_owned=True,
    ),
    audited(
        "sessions.spawn",
        sessions.SpawnAsked,
        SpawnedView,
        sessions.spawn,
        "Give work to a child session, which is woken until it is done; idempotent by its task_id.",
        is_owned=True,
    ),
]
