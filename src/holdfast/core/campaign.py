"""Campaign, Item, Phase and ItemPhase: a large body of work, checked before it is stored."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.errors import BadInput
from holdfast.core.ids import CampaignId, TaskId
from holdfast.core.payload import (
    MAX_GOAL_BYTES,
    check_code_name,
    check_name,
    check_number,
    check_text,
    check_tree,
)
from holdfast.core.plan import Plan
from holdfast.core.redaction import redact_name
from holdfast.core.task import Progress
from holdfast.core.transitions import CampaignStatus, ItemStatus

MAX_ITEMS = 10_000_000
MAX_PHASES = 20
MAX_STAGES = 100
MAX_ACTION_CHARS = 200
MAX_CONCURRENCY = 100_000
MAX_BATCH_SIZE = 10_000
MAX_ITEM_BYTES = 64 * 1024
DEFAULT_BATCH_SIZE = 10
DEFAULT_CONCURRENCY = 50
DEFAULT_ITEM_PRIORITY = "P2"
# How often a campaign is saved as a whole: after so many items that are done, and after so long.
CHECKPOINT_EVERY_ITEMS = 10
CHECKPOINT_EVERY_S = 300

# P0 is the most urgent one, as for tasks.
_PRIORITY = re.compile(r"P[0-9]\Z")
_ITEM_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_PHASE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,49}\Z")
# The kind of agent that does a phase, where the phase does not name it.
_ROLES = {"analysis": "analyzer", "migration": "migrator"}


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One unit of a campaign, such as a repository: what the task of a phase gets as `item`."""

    id: str
    name: str = ""
    priority: str = DEFAULT_ITEM_PRIORITY
    category: str | None = None
    # What else the user's file says of it.
    fields: dict[str, Any] = {}
    # Set when its task is created.
    campaign: str = ""
    phase: str = ""
    stages: tuple[str, ...] = ()


class Phase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stage that every item goes through: the task that does it, and what must be done before."""

    name: str
    # The name of a task with a parameter called `item`.
    task: str
    # The second half of an agent's id: `repo-001-analyzer`.
    role: str = ""
    stages: tuple[str, ...] = ()
    # Phases that an item must have done before; None for the phase before this one.
    needs: tuple[str, ...] | None = None
    # Whether it starts only when every item has come through those phases.
    waits_for_all: bool = False
    concurrency: int | None = None


class CampaignSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What does not change during the life of a campaign."""

    phases: tuple[Phase, ...]
    goal: str = ""
    batch_size: int = DEFAULT_BATCH_SIZE
    # How many item-phases may be in flight: in all, and on one host.
    concurrency: int = DEFAULT_CONCURRENCY
    host_concurrency: int | None = None
    checkpoint_every_items: int = CHECKPOINT_EVERY_ITEMS
    checkpoint_every_s: int = CHECKPOINT_EVERY_S

    def number_of(self, phase: str) -> int:
        """The number of the phase with this name. Raises BadInput."""
        for number, one in enumerate(self.phases):
            if one.name == phase:
                return number
        known = ", ".join(one.name for one in self.phases)
        raise BadInput("phase", f"there is no phase {phase!r}; this campaign has {known}")

    def needs_of(self, number: int) -> tuple[int, ...]:
        """The numbers of the phases that an item must have done before this one."""
        needs = self.phases[number].needs
        if needs is None:
            return (number - 1,) if number else ()
        return tuple(self.number_of(name) for name in needs)

    def all_needs_of(self, number: int) -> tuple[int, ...]:
        """The same with the phases that those need, and so on."""
        found: set[int] = set()
        ahead = list(self.needs_of(number))
        while ahead:
            need = ahead.pop()
            if need not in found:
                found.add(need)
                ahead += self.needs_of(need)
        return tuple(sorted(found))

    def dependents_of(self, number: int) -> tuple[int, ...]:
        """The numbers of the phases that need this one."""
        return tuple(one for one in range(len(self.phases)) if number in self.needs_of(one))


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """A large body of work: items that go through phases, in batches, by priority."""

    id: CampaignId
    name: str
    owner: str
    spec: CampaignSpec
    created_at: datetime
    status: CampaignStatus = CampaignStatus.DRAFT
    items: int = 0
    batches: int = 0
    # By priority: the number of the last batch, and how many items it still takes.
    open_batches: dict[str, tuple[int, int]] = {}
    # Why it was paused, or how it ended.
    reason: str | None = None
    updated_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    # When it was last started, resumed or reopened.
    ran_since: datetime | None = None


class ItemRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An item as it is stored, with its place in the order of items and the number of its batch."""

    campaign_id: CampaignId
    place: int
    id: str
    name: str
    priority: str
    category: str | None
    batch: int
    # JSON of the item's fields.
    contents: bytes
    created_at: datetime
    is_damaged: bool = False
    is_sealed: bool = False


class ItemPhase(msgspec.Struct, frozen=True, kw_only=True):
    """One item in one phase. Its task is created when it is started."""

    campaign_id: CampaignId
    phase: int
    place: int
    priority: str
    category: str | None
    batch: int
    status: ItemStatus = ItemStatus.PENDING
    # How many phases of the same item must be done before.
    unmet: int = 0
    # How many tasks were created for it.
    attempt: int = 0
    task_id: TaskId | None = None
    # A small redacted JSON document of its result.
    summary: bytes | None = None
    error: str | None = None
    # Why it was started anew.
    note: str | None = None
    updated_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    # How far its task is: kept when its plan moves, a turn ends or progress is saved.
    # The stage that it is in, or was in last; of a plan without stages, the item of the plan.
    stage: str | None = None
    percent: int = 0
    # What the task reported by `run.progress(…)`.
    subtask: str | None = None
    items_total: int | None = None
    items_done: int | None = None
    items_failed: int | None = None
    # The step that was saved last: told every few seconds, and when a turn or the task ends.
    last_action: str | None = None
    last_action_at: datetime | None = None
    # It was paused with its campaign, and goes on with it.
    goes_on: bool = False


class ItemProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the task of an item is. What is None stays as it was."""

    stage: str | None = None
    # From the plan; what the task reports of its own progress goes before it.
    percent: int | None = None
    progress: Progress | None = None
    last_action: str | None = None
    last_action_at: datetime | None = None
    # Why its task begins from the start.
    note: str | None = None

    def then(self, later: ItemProgress) -> ItemProgress:
        """Both together; the later one wins."""
        return ItemProgress(
            **{
                name: mine if (new := getattr(later, name)) is None else new
                for name in self.__struct_fields__
                for mine in [getattr(self, name)]
            }
        )


def percent_of(progress: Progress) -> int | None:
    """How much of a task is done, by its own report; None if it named no total."""
    if not progress.total:
        return None
    return max(0, min(100, 100 * progress.done // progress.total))


def stage_progress(plan: Plan) -> ItemProgress:
    """The stage that a plan is in, and how much of it is done."""
    if not plan.items:
        return ItemProgress()
    done = sum(item.is_done for item in plan.items)
    stage = plan.cursor.next_step or plan.cursor.last_completed
    return ItemProgress(
        stage=None if stage is None else redact_name(stage), percent=100 * done // len(plan.items)
    )


def action_of(step: str) -> str:
    """The name of a step as an item shows it."""
    return redact_name(step)[:MAX_ACTION_CHARS]


def batch_name(number: int) -> str:
    return f"batch-{number:03d}"


def role_of(phase: Phase) -> str:
    return phase.role or _ROLES.get(phase.name, phase.name)


def agent_id(item_id: str, phase: Phase) -> str:
    """The name of the agent that does one item in one phase: `repo-001-analyzer`."""
    return f"{item_id}-{role_of(phase)}"


def urgency_of(priority: str) -> int:
    """The priority of a task for an item: P0 is 0, the most urgent."""
    return int(priority[1:])


# --- checks


def check_campaign_name(name: object) -> str:
    """A name that is also a file name and an argument on the command line. Raises BadInput."""
    if not isinstance(name, str) or not _ITEM_ID.match(name):
        raise BadInput(
            "campaign name", "1 to 100 letters, digits, dots, dashes and underscores, such as rd-os"
        )
    return _without_secret("campaign name", name)


def check_spec(spec: CampaignSpec) -> CampaignSpec:
    """The spec as it is stored. Raises BadInput, which names the phase and the fix."""
    if not isinstance(spec, CampaignSpec):
        raise BadInput("campaign", f"a CampaignSpec is needed, not {type(spec).__name__}")
    if not spec.phases:
        raise BadInput("phases", "a campaign has at least one phase: --phases analysis")
    if len(spec.phases) > MAX_PHASES:
        raise BadInput("phases", f"there are {len(spec.phases)}; {MAX_PHASES} are allowed")
    names: list[str] = []
    phases = []
    for phase in spec.phases:
        phases.append(_checked_phase(phase, names))
        names.append(phase.name)
    _check_roles(phases)
    host = spec.host_concurrency
    return CampaignSpec(
        phases=tuple(phases),
        goal=check_text("goal", spec.goal, max_bytes=MAX_GOAL_BYTES, may_be_empty=True),
        batch_size=check_number("batch_size", spec.batch_size, low=1, high=MAX_BATCH_SIZE),
        concurrency=check_number("concurrency", spec.concurrency, low=1, high=MAX_CONCURRENCY),
        host_concurrency=None
        if host is None
        else check_number("host_concurrency", host, low=1, high=MAX_CONCURRENCY),
        checkpoint_every_items=check_number(
            "checkpoint_every_items", spec.checkpoint_every_items, low=1, high=MAX_ITEMS
        ),
        checkpoint_every_s=check_number(
            "checkpoint_every_s", spec.checkpoint_every_s, low=1, high=7 * 24 * 3600
        ),
    )


def _checked_phase(phase: Phase, before: Sequence[str]) -> Phase:
    if not isinstance(phase, Phase):
        raise BadInput("phases", f"a phase is needed, not {type(phase).__name__}")
    if not isinstance(phase.name, str) or not _PHASE_NAME.match(phase.name):
        raise BadInput(
            "phase",
            f"{str(phase.name)[:40]!r} is no name: small letters, digits and dashes, such as analysis",
        )
    field = f"phase {phase.name}"
    if phase.name in before:
        raise BadInput(field, "two phases have this name; rename one")
    task = check_code_name(f"task of {field}", phase.task)
    needs = phase.needs
    for need in needs or ():
        if need not in before:
            raise BadInput(field, f"it needs {need!r}, which does not stand before it; put that phase first")
    if len(phase.stages) > MAX_STAGES or len(set(phase.stages)) != len(phase.stages):
        raise BadInput(field, f"at most {MAX_STAGES} stages, each with another name")
    return Phase(
        name=phase.name,
        task=_without_secret(f"task of {field}", task),
        role=check_name(f"role of {field}", phase.role) if phase.role else "",
        stages=tuple(check_name(f"stage of {field}", stage) for stage in phase.stages),
        needs=None if needs is None else tuple(dict.fromkeys(needs)),
        waits_for_all=bool(phase.waits_for_all),
        concurrency=None
        if phase.concurrency is None
        else check_number(f"concurrency of {field}", phase.concurrency, low=1, high=MAX_CONCURRENCY),
    )


def _check_roles(phases: Iterable[Phase]) -> None:
    seen: dict[str, str] = {}
    for phase in phases:
        other = seen.setdefault(role_of(phase), phase.name)
        if other != phase.name:
            raise BadInput(
                f"phase {phase.name}",
                f"{other} has the role {role_of(phase)!r}, too, and agents would share a name; rename one",
            )


def check_item(item: Item, number: int) -> Item:
    """The item as it is stored. `number` tells which one of many is wrong. Raises BadInput."""
    field = f"item {number}"
    if not isinstance(item, Item):
        raise BadInput(field, f"an item is needed, not {type(item).__name__}")
    if not isinstance(item.id, str) or not _ITEM_ID.match(item.id):
        raise BadInput(
            field,
            f"its id is {str(item.id)[:40]!r}; an id has 1 to 100 letters, digits, dots, dashes and "
            "underscores, such as repo-001",
        )
    field = f"item {_without_secret(field, item.id)}"
    if not isinstance(item.priority, str) or not _PRIORITY.match(item.priority):
        raise BadInput(field, f"its priority is {str(item.priority)[:20]!r}; use P0 (first) to P9 (last)")
    if not isinstance(item.fields, dict):
        raise BadInput(field, "its fields are no object of names and values")
    check_tree(f"fields of {field}", item.fields)
    return Item(
        id=item.id,
        name=check_name(f"name of {field}", item.name) if item.name else item.id,
        priority=item.priority,
        category=None if not item.category else check_name(f"category of {field}", item.category),
        fields=item.fields,
    )


def _without_secret(field: str, text: str) -> str:
    if redact_name(text) != text:
        raise BadInput(field, "it looks like a secret; name it otherwise")
    return text
