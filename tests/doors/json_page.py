"""docs/guides/json.md, made from the views: `python -m tests.doors.json_page` writes it anew."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from holdfast.cli.campaign_analysis import AnalysedView
from holdfast.demo.kill_and_resume import DemoView
from holdfast.engine.campaigns.documents import ContextDocument, PhaseDocument
from holdfast.engine.campaigns.recovery_document import RecoveryDocument
from holdfast.views.agents import AgentChangedView, AgentDetailView, AgentListView
from holdfast.views.alerts import AlertCheckView, AlertPageView, AlertRulesView, SilencedView
from holdfast.views.audit import AuditPageView
from holdfast.views.campaign_checkpoints import (
    CampaignCheckpointLineView,
    CampaignCheckpointPageView,
    CampaignCheckpointView,
    CampaignPrunedView,
    MicroCheckpointPageView,
    RestorePlanView,
    RestoreProgressView,
)
from holdfast.views.campaigns import (
    CampaignChangedView,
    CampaignDetailView,
    CampaignFilledView,
    CampaignPageView,
    ItemDetailView,
    ItemPageView,
    ItemsAddedView,
    ItemsRetriedView,
)
from holdfast.views.checkpoints import CheckpointLineView, CheckpointPageView, CheckpointView, PrunedView
from holdfast.views.config import ConfigCheckView, ExplainedView
from holdfast.views.deliveries import DeliveryChangedView, DeliveryPageView
from holdfast.views.effects import ResolvedView, ReviewDetailView, ReviewPageView
from holdfast.views.errors import ErrorDocument
from holdfast.views.events import EventPageView
from holdfast.views.flows import (
    FlowCancelView,
    FlowCreatedView,
    FlowDetailView,
    FlowPageView,
    FlowRetriedView,
)
from holdfast.views.gateway import (
    GatewayView,
    LetResumeView,
    RestartAnswerView,
    RestartPageView,
    StoppingView,
)
from holdfast.views.health import (
    AcceptedView,
    BackedUpView,
    DoctorView,
    MigratedView,
    VerifiedView,
    VersionView,
)
from holdfast.views.imports import ImportView
from holdfast.views.keys import ExportedView, ImportedView, KeyView, RekeyedView
from holdfast.views.progress import CampaignProgressView, GroupPageView, SampleView
from holdfast.views.projections import FilesPlaceView, FilesRebuiltView
from holdfast.views.questions import AnsweredView, QuestionPageView
from holdfast.views.schedules import (
    FiringPageView,
    SchedulePageView,
    ScheduleRemovedView,
    ScheduleRunView,
    ScheduleView,
)
from holdfast.views.security import SecurityView
from holdfast.views.sessions import (
    MessageView,
    PostedView,
    SessionDetailView,
    SessionPageView,
)
from holdfast.views.snapshot import SnapshotView
from holdfast.views.starts import RecoveryView
from holdfast.views.status import StatusView
from holdfast.views.steps import StepPageView
from holdfast.views.tasks import (
    CancelView,
    FollowedView,
    ForkedView,
    NotifyView,
    RetriedPageView,
    RetriedView,
    TaskDetailView,
    TaskPageView,
    WaitedView,
)
from holdfast.views.tokens import TokenMadeView, TokenPageView, TokenRevokedView
from holdfast.views.up import DashboardLinkView, UnitView, UpView
from holdfast.views.upkeep import AuditView, MaintenanceView
from holdfast.views.wakes import WakeHistoryView, WakePageView, WakeView
from holdfast.views.worker import StartedWorkerView

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "json.md"
ANSWERS: dict[str, type[msgspec.Struct]] = {
    "up": UpView,
    "dashboard": DashboardLinkView,
    "gateway unit": UnitView,
    "status": StatusView,
    "status --recovery": RecoveryView,
    "gateway restart": RestartAnswerView,
    "gateway stop": StoppingView,
    "gateway status": GatewayView,
    "gateway restarts": RestartPageView,
    "gateway resume": LetResumeView,
    "chat SESSION": MessageView,
    "sessions list": SessionPageView,
    "sessions show SESSION": SessionDetailView,
    "sessions tasks [SESSION]": SnapshotView,
    "sessions send SESSION TEXT": PostedView,
    "agents list": AgentListView,
    "agents show AGENT": AgentDetailView,
    "agents pause AGENT": AgentChangedView,
    "agents resume AGENT": AgentChangedView,
    "agents restart AGENT": AgentChangedView,
    "run MODULE:TASK": FollowedView,
    "worker MODULE": StartedWorkerView,
    "tasks list": TaskPageView,
    "tasks show TASK": TaskDetailView,
    "tasks steps ID": StepPageView,
    "tasks wait TASK": WaitedView,
    "tasks notify TASK POLICY": NotifyView,
    "tasks cancel TASK": CancelView,
    "tasks retry TASK": RetriedView,
    "tasks retry --status STATUS": RetriedPageView,
    "tasks fork TASK --at PLACE": ForkedView,
    "tasks flow list": FlowPageView,
    "tasks flow show FLOW": FlowDetailView,
    "tasks flow start NAME": FlowCreatedView,
    "tasks flow cancel FLOW": FlowCancelView,
    "tasks flow retry FLOW": FlowRetriedView,
    "campaign list": CampaignPageView,
    "campaign show NAME": CampaignDetailView,
    "campaign items NAME": ItemPageView,
    "campaign item NAME ITEM": ItemDetailView,
    "campaign create NAME": CampaignFilledView,
    "campaign analyse FOLDER": AnalysedView,
    "campaign add NAME FILE": ItemsAddedView,
    "campaign start NAME": CampaignChangedView,
    "campaign pause NAME": CampaignChangedView,
    "campaign resume NAME": CampaignChangedView,
    "campaign retry NAME": ItemsRetriedView,
    "progress": CampaignProgressView,
    "campaign recovery NAME": RecoveryDocument,
    "state path": FilesPlaceView,
    "state rebuild": FilesRebuiltView,
    "progress --context": ContextDocument,
    "progress --document": PhaseDocument,
    "progress --by GROUP": GroupPageView,
    "progress --sample N": SampleView,
    "tasks audit": AuditView,
    "tasks maintenance": MaintenanceView,
    "reviews list": ReviewPageView,
    "reviews show EFFECT": ReviewDetailView,
    "reviews resolve EFFECT DECISION": ResolvedView,
    "questions list": QuestionPageView,
    "questions answer QUESTION ANSWER": AnsweredView,
    "tokens list": TokenPageView,
    "tokens create NAME": TokenMadeView,
    "tokens revoke NAME": TokenRevokedView,
    "tokens rotate NAME": TokenMadeView,
    "cron list": SchedulePageView,
    "cron show NAME": ScheduleView,
    "cron add NAME": ScheduleView,
    "cron edit NAME": ScheduleView,
    "cron run NAME": ScheduleRunView,
    "cron pause NAME": ScheduleView,
    "cron resume NAME": ScheduleView,
    "cron remove NAME": ScheduleRemovedView,
    "cron history": FiringPageView,
    "deliveries list": DeliveryPageView,
    "deliveries retry DELIVERY": DeliveryChangedView,
    "deliveries confirm DELIVERY": DeliveryChangedView,
    "deliveries dismiss DELIVERY": DeliveryChangedView,
    "checkpoints list": CheckpointPageView,
    "checkpoints show ID": CheckpointView,
    "checkpoints retry ID": CheckpointLineView,
    "checkpoints prune": PrunedView,
    "checkpoints list --campaign NAME": CampaignCheckpointPageView,
    "checkpoints list --campaigns": CampaignCheckpointPageView,
    "checkpoints list --campaign NAME --kind=micro": MicroCheckpointPageView,
    "checkpoints show CHECKPOINT": CampaignCheckpointView,
    "checkpoints milestone NAME": CampaignCheckpointLineView,
    "checkpoints restore ID": RestorePlanView,
    "checkpoints restore ID --apply": RestoreProgressView,
    "checkpoints prune --campaign NAME": CampaignPrunedView,
    "wakes list": WakePageView,
    "wakes history": WakeHistoryView,
    "wakes cancel ID": WakeView,
    "alerts list": AlertPageView,
    "alerts rules": AlertRulesView,
    "alerts check": AlertCheckView,
    "alerts silence NAME DURATION": SilencedView,
    "audit log": AuditPageView,
    "events": EventPageView,
    "store migrate": MigratedView,
    "store backup TARGET": BackedUpView,
    "store verify": VerifiedView,
    "store accept": AcceptedView,
    "store rekey": RekeyedView,
    "store key show": KeyView,
    "store key export [FILE]": ExportedView,
    "store key import [FILE]": ImportedView,
    "import openclaw PATH": ImportView,
    "doctor": DoctorView,
    "config check": ConfigCheckView,
    "security check": SecurityView,
    "config explain": ExplainedView,
    "demo": DemoView,
    "version": VersionView,
}
_HEAD = """\
# JSON of the commands

This page is generated from the views: `python -m tests.doors.json_page` writes it, and a test compares it.

With `--json` every command prints exactly one document on stdout, indented, in UTF-8; remarks go to stderr.
`holdfast run` prints it when the task has ended, was paused or needs a review: match its `status`.
Only `holdfast events --follow --json` prints one `EventView` per line, for as long as it runs.
`holdfast chat SESSION --json` prints one `MessageView` per line, for each answer.
`holdfast gateway restart --plan --json` prints the `ReadinessView` alone.
If it is refused, `holdfast gateway restart --json` prints its `RestartAnswerView`, with the `error` in it.
An error is a document, too: `ErrorDocument`, with the codes of the guide [operate](operate.md#error-codes).
New versions only add fields; a program must ignore those that it does not know.
Times are ISO 8601 in UTC.
Control characters are removed from text, and secrets that Holdfast recognises are redacted.
The result of `run` and the answers of `chat` are not changed ([who sees what](../../SECURITY.md)).
Long text is cut and ends with an ellipsis.
"""


def page() -> str:
    parts = [_HEAD, "## Documents", "", "| command | prints |", "| --- | --- |"]
    parts += [f"| `holdfast {command} --json` | `{view.__name__}` |" for command, view in ANSWERS.items()]
    parts += ["| any command that failed | `ErrorDocument` |", ""]
    for view in _views():
        parts += [f"## {view.__name__}", "", _sentence(view), "", "| field | is |", "| --- | --- |"]
        named = {field.name: field.encode_name for field in msgspec.structs.fields(view)}
        parts += [f"| `{named[name]}` | {_words(hint)} |" for name, hint in get_type_hints(view).items()]
        parts.append("")
    return "\n".join(parts)


def _sentence(view: type[msgspec.Struct]) -> str:
    first = (view.__doc__ or f"One {view.__name__}.").partition("\n")[0]
    return ".\n".join(first.split(". "))


def _views() -> Iterator[type[msgspec.Struct]]:
    """Every struct that an answer holds, each once, in the order in which a reader meets them."""
    seen: set[type] = set()
    waiting: list[type[msgspec.Struct]] = [*ANSWERS.values(), ErrorDocument]
    while waiting:
        view = waiting.pop(0)
        if view in seen:
            continue
        seen.add(view)
        yield view
        inner = [found for hint in get_type_hints(view).values() for found in _structs_in(hint)]
        waiting = inner + waiting


def _structs_in(hint: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for inner in get_args(hint):
        yield from _structs_in(inner)


def _words(hint: Any) -> str:
    simple = {str: "text", int: "a number", float: "a number", bool: "true or false", datetime: "a time"}
    simple |= {NoneType: "null", Any: "any value"}
    if hint in simple:
        return simple[hint]
    arguments = get_args(hint)
    match get_origin(hint):
        case origin if origin in {Union, UnionType}:
            return " or ".join(_words(inner) for inner in arguments)
        case origin if origin in {list, tuple}:
            return f"a list of {_words(arguments[0])}"
        case origin if origin is dict:
            return f"an object whose values are {_words(arguments[1])}"
        case origin if origin is Literal:
            return " or ".join(f"`{value}`" for value in arguments)
    if hasattr(hint, "__supertype__"):
        return _words(hint.__supertype__)
    if issubclass(hint, StrEnum):
        return ", ".join(f"`{one.value}`" for one in hint)
    return f"`{hint.__name__}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
