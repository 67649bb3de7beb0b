"""The public API for producers and their runtimes: what a program needs that records its own work here.

`from holdfast import producers`; then `producers.Producers`, `producers.NewRecord`, and so on.
"""

from __future__ import annotations

from holdfast.core.recorded import LateReport, RecordedDetails, RecordedWork, ScopeKind, TerminalOutcome
from holdfast.core.run import RunOutcome
from holdfast.core.task import Failure, Origin, Progress, RuntimeName
from holdfast.core.transitions import RunStatus
from holdfast.engine.producers.contract import (
    Alive,
    Dead,
    Ended,
    LifeAnswer,
    LifeUnknown,
    NotMine,
    ReattachAnswer,
    Reattached,
    Restarted,
    Runtime,
    StopAnswer,
    Unsupported,
    WorkLost,
    WorkStopped,
)
from holdfast.engine.producers.producers import Producers
from holdfast.engine.producers.stopping import NotStopped
from holdfast.engine.producers.writes import NewRecord, Noted
from holdfast.runtimes.acp import AcpConnection, AcpRuntime, StdioConnection
from holdfast.runtimes.cli import CliRuntime, pid_reference
from holdfast.runtimes.cron import CronHistory, CronRuntime, FileHistory, PastFiring

__all__ = [
    "AcpConnection",
    "AcpRuntime",
    "Alive",
    "CliRuntime",
    "CronHistory",
    "CronRuntime",
    "Dead",
    "Ended",
    "Failure",
    "FileHistory",
    "LateReport",
    "LifeAnswer",
    "LifeUnknown",
    "NewRecord",
    "NotMine",
    "NotStopped",
    "Noted",
    "Origin",
    "PastFiring",
    "Producers",
    "Progress",
    "ReattachAnswer",
    "Reattached",
    "RecordedDetails",
    "RecordedWork",
    "Restarted",
    "RunOutcome",
    "RunStatus",
    "Runtime",
    "RuntimeName",
    "ScopeKind",
    "StdioConnection",
    "StopAnswer",
    "TerminalOutcome",
    "Unsupported",
    "WorkLost",
    "WorkStopped",
    "pid_reference",
]
