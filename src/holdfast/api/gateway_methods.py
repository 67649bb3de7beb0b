"""The methods of the process: status, restart and stop, its store and its settings."""

from __future__ import annotations

from holdfast.api import ledger, restart, settings, starts
from holdfast.api.contract import ADMIN, READ
from holdfast.api.method_kinds import Method, acts, calls
from holdfast.api.params import Nothing
from holdfast.views.config import ConfigView
from holdfast.views.gateway import (
    GatewayView,
    LetResumeView,
    PreflightView,
    ReadinessView,
    RestartAnswerView,
    RestartPageView,
    StoppingView,
)
from holdfast.views.health import AcceptedView
from holdfast.views.starts import RecoveryView

GATEWAY_METHODS: list[Method] = [
    calls("gateway.status", READ, Nothing, GatewayView, restart.status, "Status of the gateway."),
    calls(
        "gateway.readiness",
        READ,
        Nothing,
        ReadinessView,
        restart.readiness,
        "What a restart would interrupt now.",
    ),
    calls(
        "gateway.restart.preflight",
        READ,
        Nothing,
        PreflightView,
        restart.preflight,
        "The same in OpenClaw's format.",
    ),
    acts(
        "gateway.restart",
        ADMIN,
        restart.RestartParams,
        RestartAnswerView,
        restart.restart,
        "Drain, restart and resume. Refused, with a list, if too much is in flight.",
    ),
    calls(
        "gateway.restarts",
        READ,
        restart.RestartsAsked,
        RestartPageView,
        restart.restarts,
        "Past restarts, and the outcome of the work that each interrupted.",
    ),
    calls(
        "gateway.recovery",
        READ,
        starts.StartAsked,
        RecoveryView,
        starts.recovery,
        "What each step of a start found and did: of the newest gateway or worker, or of one of them.",
    ),
    acts(
        "gateway.resume",
        ADMIN,
        Nothing,
        LetResumeView,
        restart.let_resume,
        "Release work held after a crash loop.",
    ),
    acts(
        "store.accept",
        ADMIN,
        Nothing,
        AcceptedView,
        ledger.accept_store,
        "Accept a database that is older than its mark, such as a restored backup.",
    ),
    acts("gateway.stop", ADMIN, restart.StopAsked, StoppingView, restart.stop, "Drain, then stop."),
    calls(
        "config.get",
        READ,
        settings.ConfigAsked,
        ConfigView,
        settings.get,
        "The settings in effect, without secrets.",
    ),
]
