"""The public API: everything a user may import, and nothing else.

Each name is imported when it is first used, so that `import holdfast` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from holdfast.app import (
        Parts,
        detached,
        open,  # noqa: A004 - `holdfast.open(…)`
        open_parts,
        open_store,
        serve,
    )
    from holdfast.app.flows import read_flows
    from holdfast.config import Settings, read_settings
    from holdfast.core.campaign import Campaign, CampaignSpec, Item, Phase
    from holdfast.core.clock import Clock, SystemClock
    from holdfast.core.done_checks import command_succeeds, file_exists, holds
    from holdfast.core.effect import Decision
    from holdfast.core.errors import (
        AmbiguousId,
        BadInput,
        BadSignature,
        CannotSeal,
        CheckpointError,
        CheckpointNotSaved,
        CheckpointUnreadable,
        ClaimLost,
        Conflict,
        Draining,
        Drift,
        EffectsInTheWay,
        FeedGap,
        FlowFailed,
        FlowsBlended,
        GatewaySilent,
        HoldfastError,
        HomeInUse,
        HomeUnusable,
        IllegalMove,
        KeyConflict,
        KeyLost,
        KeyMissing,
        KeyProblem,
        KeyWrong,
        LedgerReplaced,
        NameTaken,
        NoCampaign,
        NoLedger,
        NotDone,
        NotFound,
        NotInRun,
        NotReady,
        NotYours,
        OutcomeUnknown,
        OwnerMissing,
        PageDamaged,
        ParentMissing,
        PayloadTooLarge,
        Pruned,
        Refused,
        RestartBlocked,
        RestartRefused,
        ResumesHeld,
        RetryAfter,
        RevisionMismatch,
        RowDamaged,
        RunIdTaken,
        RunOver,
        SchemaMismatch,
        SettingsError,
        SqlFailed,
        StepFailed,
        StoreUnavailable,
        TaskFailed,
    )
    from holdfast.core.flow import Flow
    from holdfast.core.flow_definition import FlowDefinition, NodeDefinition
    from holdfast.core.ladder import Budget, ask, budget, decompose, replan, retry
    from holdfast.core.message import Envelope
    from holdfast.core.plan import PlanItem
    from holdfast.core.secret import Secret, secret
    from holdfast.core.step_declarations import (
        DidNotHappen,
        Happened,
        Unknown,
        idempotent,
        keyed,
        opaque,
        read,
        step,
        tool,
        transactional,
        verifiable,
    )
    from holdfast.engine.claims.boots import Life
    from holdfast.engine.claims.claims import Claims
    from holdfast.engine.client.campaigns import Campaigns, phase
    from holdfast.engine.client.detached import DetachedTask
    from holdfast.engine.client.flow_handles import FlowHandle
    from holdfast.engine.client.flows import Flows
    from holdfast.engine.client.handles import Handle, Holdfast
    from holdfast.engine.client.owner_flows import OwnerFlows
    from holdfast.engine.client.owner_tasks import OwnerTasks
    from holdfast.engine.ledger.flows import FlowChange, NewFlow
    from holdfast.engine.ledger.ledger import Ledger, NewTask
    from holdfast.engine.producers.producers import Producers
    from holdfast.engine.producers.writes import NewRecord
    from holdfast.engine.program.author_api import Child, PlanTurn, Run, Turn
    from holdfast.engine.program.definitions import Call, TaskDefinition, task
    from holdfast.engine.program.effects import idempotency_key
    from holdfast.engine.program.flow_builder import FlowBuilder, PlannedNode, flow
    from holdfast.engine.program.lists import DurableList, DurableValue
    from holdfast.engine.program.stopping import Stopping
    from holdfast.engine.program.transactions import Transaction
    from holdfast.engine.recovery.checkpoints import Checkpoints
    from holdfast.engine.recovery.rescue import Rescuer
    from holdfast.engine.recovery.resume import Resumer
    from holdfast.gateway.signals import StopRequest

_ERRORS = (
    "AmbiguousId BadInput BadSignature CannotSeal CheckpointError CheckpointNotSaved CheckpointUnreadable "
    "ClaimLost Conflict Draining Drift EffectsInTheWay FeedGap FlowFailed FlowsBlended GatewaySilent "
    "HoldfastError HomeInUse HomeUnusable IllegalMove KeyConflict KeyLost KeyMissing KeyProblem KeyWrong "
    "LedgerReplaced NameTaken NoCampaign NoLedger NotDone NotFound NotInRun NotReady NotYours "
    "OutcomeUnknown OwnerMissing PageDamaged ParentMissing PayloadTooLarge Pruned Refused RestartBlocked "
    "RestartRefused ResumesHeld RetryAfter RevisionMismatch RowDamaged RunIdTaken RunOver SchemaMismatch "
    "SettingsError SqlFailed StepFailed StoreUnavailable TaskFailed"
)
_WHERE = {
    "Budget": "holdfast.core.ladder",
    "budget": "holdfast.core.ladder",
    "retry": "holdfast.core.ladder",
    "replan": "holdfast.core.ladder",
    "decompose": "holdfast.core.ladder",
    "ask": "holdfast.core.ladder",
    "file_exists": "holdfast.core.done_checks",
    "command_succeeds": "holdfast.core.done_checks",
    "holds": "holdfast.core.done_checks",
    "read": "holdfast.core.step_declarations",
    "idempotent": "holdfast.core.step_declarations",
    "keyed": "holdfast.core.step_declarations",
    "verifiable": "holdfast.core.step_declarations",
    "transactional": "holdfast.core.step_declarations",
    "opaque": "holdfast.core.step_declarations",
    "step": "holdfast.core.step_declarations",
    "tool": "holdfast.core.step_declarations",
    "Happened": "holdfast.core.step_declarations",
    "DidNotHappen": "holdfast.core.step_declarations",
    "Unknown": "holdfast.core.step_declarations",
    "Run": "holdfast.engine.program.author_api",
    "Turn": "holdfast.engine.program.author_api",
    "PlanTurn": "holdfast.engine.program.author_api",
    "Child": "holdfast.engine.program.author_api",
    "DurableList": "holdfast.engine.program.lists",
    "DurableValue": "holdfast.engine.program.lists",
    "task": "holdfast.engine.program.definitions",
    "Call": "holdfast.engine.program.definitions",
    "TaskDefinition": "holdfast.engine.program.definitions",
    "Holdfast": "holdfast.engine.client.handles",
    "Handle": "holdfast.engine.client.handles",
    "DetachedTask": "holdfast.engine.client.detached",
    "OwnerFlows": "holdfast.engine.client.owner_flows",
    "OwnerTasks": "holdfast.engine.client.owner_tasks",
    "NewRecord": "holdfast.engine.producers.writes",
    "Producers": "holdfast.engine.producers.producers",
    "Campaign": "holdfast.core.campaign",
    "CampaignSpec": "holdfast.core.campaign",
    "Item": "holdfast.core.campaign",
    "Phase": "holdfast.core.campaign",
    "Campaigns": "holdfast.engine.client.campaigns",
    "phase": "holdfast.engine.client.campaigns",
    "Flow": "holdfast.core.flow",
    "FlowBuilder": "holdfast.engine.program.flow_builder",
    "FlowChange": "holdfast.engine.ledger.flows",
    "FlowDefinition": "holdfast.core.flow_definition",
    "FlowHandle": "holdfast.engine.client.flow_handles",
    "Flows": "holdfast.engine.client.flows",
    "NewFlow": "holdfast.engine.ledger.flows",
    "NodeDefinition": "holdfast.core.flow_definition",
    "PlannedNode": "holdfast.engine.program.flow_builder",
    "flow": "holdfast.engine.program.flow_builder",
    "Decision": "holdfast.core.effect",
    "idempotency_key": "holdfast.engine.program.effects",
    "Stopping": "holdfast.engine.program.stopping",
    "Transaction": "holdfast.engine.program.transactions",
    "PlanItem": "holdfast.core.plan",
    "Envelope": "holdfast.core.message",
    "open": "holdfast.app",
    "detached": "holdfast.app",
    "serve": "holdfast.app",
    "StopRequest": "holdfast.gateway.signals",
    "Secret": "holdfast.core.secret",
    "secret": "holdfast.core.secret",
    "Checkpoints": "holdfast.engine.recovery.checkpoints",
    "Claims": "holdfast.engine.claims.claims",
    "Clock": "holdfast.core.clock",
    "Ledger": "holdfast.engine.ledger.ledger",
    "Life": "holdfast.engine.claims.boots",
    "NewTask": "holdfast.engine.ledger.ledger",
    "Parts": "holdfast.app",
    "Rescuer": "holdfast.engine.recovery.rescue",
    "Resumer": "holdfast.engine.recovery.resume",
    "Settings": "holdfast.config",
    "SystemClock": "holdfast.core.clock",
    "open_parts": "holdfast.app",
    "open_store": "holdfast.app",
    "read_settings": "holdfast.config",
    "read_flows": "holdfast.app.flows",
} | dict.fromkeys(_ERRORS.split(), "holdfast.core.errors")


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "AmbiguousId",
    "BadInput",
    "BadSignature",
    "Budget",
    "Call",
    "Campaign",
    "CampaignSpec",
    "Campaigns",
    "CannotSeal",
    "CheckpointError",
    "CheckpointNotSaved",
    "CheckpointUnreadable",
    "Checkpoints",
    "Child",
    "ClaimLost",
    "Claims",
    "Clock",
    "Conflict",
    "Decision",
    "DetachedTask",
    "DidNotHappen",
    "Draining",
    "Drift",
    "DurableList",
    "DurableValue",
    "EffectsInTheWay",
    "Envelope",
    "FeedGap",
    "Flow",
    "FlowBuilder",
    "FlowChange",
    "FlowDefinition",
    "FlowFailed",
    "FlowHandle",
    "Flows",
    "FlowsBlended",
    "GatewaySilent",
    "Handle",
    "Happened",
    "Holdfast",
    "HoldfastError",
    "HomeInUse",
    "HomeUnusable",
    "IllegalMove",
    "Item",
    "KeyConflict",
    "KeyLost",
    "KeyMissing",
    "KeyProblem",
    "KeyWrong",
    "Ledger",
    "LedgerReplaced",
    "Life",
    "NameTaken",
    "NewFlow",
    "NewRecord",
    "NewTask",
    "NoCampaign",
    "NoLedger",
    "NodeDefinition",
    "NotDone",
    "NotFound",
    "NotInRun",
    "NotReady",
    "NotYours",
    "OutcomeUnknown",
    "OwnerFlows",
    "OwnerMissing",
    "OwnerTasks",
    "PageDamaged",
    "ParentMissing",
    "Parts",
    "PayloadTooLarge",
    "Phase",
    "PlanItem",
    "PlanTurn",
    "PlannedNode",
    "Producers",
    "Pruned",
    "Refused",
    "Rescuer",
    "RestartBlocked",
    "RestartRefused",
    "Resumer",
    "ResumesHeld",
    "RetryAfter",
    "RevisionMismatch",
    "RowDamaged",
    "Run",
    "RunIdTaken",
    "RunOver",
    "SchemaMismatch",
    "Secret",
    "Settings",
    "SettingsError",
    "SqlFailed",
    "StepFailed",
    "StopRequest",
    "Stopping",
    "StoreUnavailable",
    "SystemClock",
    "TaskDefinition",
    "TaskFailed",
    "Transaction",
    "Turn",
    "Unknown",
    "__version__",
    "ask",
    "budget",
    "command_succeeds",
    "decompose",
    "detached",
    "file_exists",
    "flow",
    "holds",
    "idempotency_key",
    "idempotent",
    "keyed",
    "opaque",
    "open",
    "open_parts",
    "open_store",
    "phase",
    "read",
    "read_flows",
    "read_settings",
    "replan",
    "retry",
    "secret",
    "serve",
    "step",
    "task",
    "tool",
    "transactional",
    "verifiable",
]
