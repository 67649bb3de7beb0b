"""Every exception Holdfast raises, with the hierarchy drawn here.

HoldfastError
├── NotFound                no record with that id, or none that you may see
│   ├── NoLedger                there is no ledger at that path or URL
│   ├── NoCampaign              there is no campaign yet, or none that you may see
│   └── Pruned                  the task ended, and retention removed it with its journal
├── AmbiguousId             an id prefix that matches several records
├── BadInput                wrong type, empty, too long, control characters, too deep
│   ├── PayloadTooLarge         over the cap; nothing was stored
│   ├── OwnerMissing            recorded work without the session or system for which it exists
│   └── ParentMissing           a child session, or recorded work in a session, without what started it
├── Conflict                the record changed first
│   ├── IllegalMove             the status table does not allow it
│   ├── ClaimLost               another worker holds a newer fence
│   ├── RevisionMismatch        the flow has a newer revision
│   ├── NameTaken               there is a schedule with this name
│   ├── RunIdTaken              a producer's run id belongs to another task
│   └── KeyConflict             the dedup key belongs to a task with other arguments
├── CheckpointError
│   ├── CheckpointNotSaved      the drain must stop
│   └── CheckpointUnreadable    becomes failed_resume, with the reason
├── Refused
│   ├── NotYours                the record belongs to another owner
│   ├── FlowsBlended            one flow would both start tasks and follow those of others
│   ├── BadSignature            an incoming request has a wrong signature, or one that is too old
│   ├── EffectsInTheWay         a fork would go back to before effects that have happened
│   ├── HomeInUse               another process holds the home directory
│   ├── GatewaySilent           the gateway does not answer
│   ├── Draining                the gateway is draining, and the settings say not to queue messages
│   ├── NotReady                a restart would interrupt more than the settings allow
│   ├── RestartBlocked          something could not be saved before a restart
│   ├── RestartRefused          a run asked for a restart, and its process does not restart
│   └── ResumesHeld             the database is older than its mark; an operator must accept it
├── StepFailed              a step raised, and is not retried (again)
├── TaskFailed              the task whose result the caller waits for ended without one
├── FlowFailed              the flow whose results the caller waits for is blocked, or ended without them
├── Drift                   the journal does not match the program that replays it
├── NotInRun                called outside a run
├── RunOver                 a run was used after its end
├── RetryAfter              raised by a step: retry later, and do not count this as an attempt
├── NotDone                 raised by an effect: it certainly did not happen
├── SqlFailed               the database refused an SQL statement of a transactional step
├── RowDamaged              a stored record does not match its digest
│   ├── PageDamaged             a page of the database cannot be read; its records are unknown
│   └── KeyLost                 no available key opens a sealed value
├── FeedGap                 the events after that position were pruned
├── LedgerFileOpened        code in this process tried to open the ledger's file
├── StoreUnavailable        the database did not answer; safe to retry
│   ├── CannotSeal              a value holds a secret, and there is no key to seal it with
│   ├── LedgerReplaced          the database file was deleted or replaced while it was open
│   └── OutcomeUnknown          the answer to a commit was lost, and the database is still unreachable
├── SchemaMismatch          the database was written by a newer Holdfast, or was altered
├── KeyProblem              the key of sealed values cannot be used
│   ├── KeyMissing              the ledger has sealed values, and this process has no key
│   └── KeyWrong                this process has a key of another ledger
└── SettingsError           a setting is invalid; the message names the key and the fix
    └── HomeUnusable            the home directory cannot be created, or is not a directory
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from holdfast.core.task import Failure


MAX_RETRY_AFTER_S = 366 * 86_400


class HoldfastError(Exception):
    """Base of everything Holdfast raises; `code` is stable and may be matched by programs."""

    code: ClassVar[str] = "error"


# For nouns without a `list` command: the command that shows them.
_SHOWN_BY = {
    "campaign": "campaign list",
    "channel": "config explain",
    "delivery": "deliveries list",
    "effect": "tasks list",
    "alert rule": "alerts rules",
    "firing": "events",
    "schedule": "cron list",
    "flow": "tasks flow list",
    "item": "campaign items",
    "message": "sessions list",
    "node": "tasks flow show",
    "restart": "gateway restarts",
    "restore": "checkpoints list",
    "run": "tasks list",
    "setting": "config explain",
    "start": "status",
    "wake": "wakes list",
}


class NotFound(HoldfastError):
    """There is no such record, or none that the caller may see."""

    code = "not_found"

    def __init__(
        self,
        noun: str,
        record_id: str,
        *,
        within: str | None = None,
        shown_by: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.noun = noun
        self.record_id = record_id
        where, more = ("", "") if within is None else (f" in {within}", f" {within}")
        command = (shown_by or _SHOWN_BY.get(noun, f"{noun}s list")) + more
        fix = remedy or f"run `holdfast {command}` to see what there is"
        super().__init__(f"no {noun} {record_id!r}{where}; {fix}")


class NoLedger(NotFound):
    """There is no ledger at that path or URL; reading does not create one."""

    code = "no_ledger"

    def __init__(self, where: str) -> None:
        super().__init__("ledger", where)
        remedy = "the first task creates it, or run `holdfast store migrate`"
        self.args = (f"no ledger at {where} yet; {remedy}",)


class NoCampaign(NotFound):
    """There is no campaign yet, or none that the caller may see."""

    code = "no_campaign"

    def __init__(self) -> None:
        super().__init__("campaign", "")
        self.args = ("there is no campaign yet; create one: `holdfast campaign create --help`",)


class Pruned(NotFound):
    """The task ended and retention has removed it since, so it cannot be resumed or retried."""

    code = "pruned"

    def __init__(self, task_id: str) -> None:
        super().__init__("task", task_id)
        text = f"task {task_id} ended, and retention removed it with its journal, so it cannot continue; "
        self.args = (f"{text}start a new task under another key",)


class AmbiguousId(HoldfastError):
    """An id prefix that matches more than one record."""

    code = "ambiguous_id"

    def __init__(self, noun: str, prefix: str, matches: list[str]) -> None:
        self.noun = noun
        self.prefix = prefix
        self.matches = matches
        found = ", ".join(matches)
        is_prefix = all(one.startswith((prefix, f"{noun}_{prefix}")) for one in matches)
        fix = "give more characters" if is_prefix else "give the id of one of them"
        super().__init__(f"{prefix!r} matches several {noun}s ({found}, …); {fix}")


class BadInput(HoldfastError):
    """An invalid value; nothing was changed."""

    code = "bad_input"

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")


class PayloadTooLarge(BadInput):
    """A payload over the cap; nothing was stored."""

    code = "payload_too_large"

    def __init__(self, field: str, size_bytes: int, max_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.max_bytes = max_bytes
        super().__init__(
            field,
            f"{size_bytes:,} bytes, more than the cap of {max_bytes:,}; "
            "save it as a file and record an artifact that points to it",
        )


class OwnerMissing(BadInput):
    """Recorded work needs the session or system for which it exists: only its owner may control it."""

    code = "owner_missing"

    def __init__(self) -> None:
        super().__init__(
            "owner", "recorded work needs an owner; give the key of the session, or `system`, that it is for"
        )


class ParentMissing(BadInput):
    """Recorded work names a child session or a scope, and not the session or task that it belongs to."""

    code = "parent_missing"


class Conflict(HoldfastError):
    """The record changed first; read it again before you decide."""

    code = "conflict"


class IllegalMove(Conflict):
    """The table of moves does not allow this change of status."""

    code = "illegal_move"

    def __init__(self, noun: str, record_id: str, status: str, to: str) -> None:
        self.noun = noun
        self.record_id = record_id
        self.status = status
        self.to = to
        super().__init__(f"{noun} {record_id} {_why_no_move(status, to)}")


# What an operator or a program does to a record; other moves are those of the record itself.
_DONE_TO_IT = frozenset(
    ["answered", "cancelled", "confirmed", "dismissed", "restored", "retried", "reviewed", "sent", "started"]
)
_STATE = {"failed": "has failed", "succeeded": "has succeeded", "timed_out": "has timed out"}


def _why_no_move(status: str, to: str) -> str:
    if status == to:
        return f"is {status} already"
    if to.split()[0].rstrip(":;") not in _DONE_TO_IT:
        return f"is {status} and cannot become {to}"
    nothing = ": there is nothing to retry" if (status, to) == ("succeeded", "retried") else ""
    return f"{_STATE.get(status, f'is {status}')} and cannot be {to}{nothing}"


class ClaimLost(Conflict):
    """A write with a fence that is no longer the newest; it changed nothing."""

    code = "claim_lost"

    def __init__(self, record_id: str, fence: int) -> None:
        self.record_id = record_id
        self.fence = fence
        super().__init__(
            f"the claim on {record_id} with fence {fence} is lost: it ended, or another worker holds it now; "
            "nothing was written, stop working on it"
        )


class RevisionMismatch(Conflict):
    """A change that names a revision that is no longer the newest."""

    code = "revision_mismatch"

    def __init__(self, record_id: str, expected: int, found: int) -> None:
        self.record_id = record_id
        self.expected = expected
        self.found = found
        super().__init__(
            f"{record_id} is at revision {found}, and this change was made for revision {expected}: another "
            "change came first, and nothing was changed; read it again, decide anew, and try again with "
            f"revision {found}"
        )


class NameTaken(Conflict):
    """There is a schedule with this name; nothing was changed."""

    code = "name_taken"

    def __init__(self, name: str, *, is_in_settings: bool = False) -> None:
        self.name = name
        where = "in the settings of a gateway" if is_in_settings else "already"
        fix = "" if is_in_settings else f", or change that one: `holdfast cron edit {name}`"
        super().__init__(f"there is a schedule {name} {where}; choose another name{fix}")


class RunIdTaken(Conflict):
    """A producer gave the run id of another task; nothing was created."""

    code = "run_id_taken"

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"run id {run_id!r} belongs to a task with another name, runtime or goal; give each run its own "
            "id, or repeat the first call unchanged"
        )


class KeyConflict(Conflict):
    """The same dedup key with another task name, other arguments or another goal."""

    code = "key_conflict"

    def __init__(
        self,
        key: str,
        task_id: str,
        *,
        of_goal: bool = False,
        of_definition: bool = False,
        of_message: bool = False,
    ) -> None:
        self.key = key
        self.task_id = task_id
        what = "another goal" if of_goal else "another name or other arguments"
        fix = "the same goal, or no goal" if of_goal else "the same arguments"
        if of_definition:
            what, fix = "another definition", "the same definition and goal"
        elif of_message:
            what, fix = "another text, sender or session", "the same message"
        super().__init__(
            f"key {key!r} belongs to {task_id}, which was created with {what}; use another key, or {fix}"
        )


class CheckpointError(HoldfastError):
    """Something about a checkpoint went wrong."""

    code = "checkpoint_error"


class CheckpointNotSaved(CheckpointError):
    """A checkpoint could not be made durable, so the process must not stop."""

    code = "checkpoint_not_saved"

    def __init__(self, run_id: str, why: str) -> None:
        self.run_id = run_id
        self.why = why
        super().__init__(f"no checkpoint of {run_id} was saved: {why}")


class CheckpointUnreadable(CheckpointError):
    """A stored checkpoint that cannot be resumed; `problem` says what is wrong with it."""

    code = "checkpoint_unreadable"

    def __init__(self, checkpoint_id: str, problem: str) -> None:
        self.checkpoint_id = checkpoint_id
        self.problem = problem
        super().__init__(f"checkpoint {checkpoint_id} cannot be used: {problem}")


class Refused(HoldfastError):
    """A valid request that Holdfast declines."""

    code = "refused"


class NotYours(Refused):
    """The record belongs to another owner."""

    code = "not_yours"

    def __init__(self, noun: str, record_id: str, owner: str) -> None:
        self.noun = noun
        self.record_id = record_id
        self.owner = owner
        super().__init__(f"{noun} {record_id} does not belong to {owner!r}; only its owner may change it")


class FlowsBlended(Refused):
    """Managed and mirrored are never blended in one flow: a task was to join a flow that starts its own
    tasks, or a flow that only follows its tasks was to be driven."""

    code = "flows_blended"

    def __init__(self, flow_id: str, why: str) -> None:
        self.flow_id = flow_id
        super().__init__(f"{flow_id} {why}")


class BadSignature(Refused):
    """An incoming request whose signature is wrong or too old; nothing was stored."""

    code = "bad_signature"

    def __init__(self, channel: str, why: str) -> None:
        self.channel = channel
        self.why = why
        super().__init__(f"channel {channel}: {why}")


class EffectsInTheWay(Refused):
    """A fork would go back to before effects that happened, or may have happened; nothing was changed."""

    code = "effects_in_the_way"

    def __init__(self, task_id: str, effects: list[str], remedy: str) -> None:
        self.task_id = task_id
        self.effects = effects
        shown = ", ".join(effects[:5]) + (f" and {len(effects) - 5} more" if len(effects) > 5 else "")
        super().__init__(f"since then, {task_id} has done: {shown}; {remedy}")


class HomeInUse(Refused):
    """Another process holds the home directory."""

    code = "home_in_use"

    def __init__(self, *, home: str, pid: int | None) -> None:
        self.home = home
        self.pid = pid
        holder = f"process {pid}" if pid is not None else "another process"
        super().__init__(f"{holder} holds {home}; stop it, or choose another --home")


class Draining(Refused):
    """The gateway is about to restart, and the settings say not to queue messages meanwhile."""

    code = "draining"

    def __init__(self) -> None:
        super().__init__(
            "the gateway is draining, and drain_queue_messages is off; send it again in a moment"
        )


class GatewaySilent(Refused):
    """Only a running gateway can do this, and none answers."""

    code = "gateway_silent"

    def __init__(self, home: str, why: str, *, was_there: bool = True, is_remote: bool = False) -> None:
        # The address of a remote gateway, else the home.
        self.home = home
        self.why = why
        # False when no process listens there.
        self.was_there = was_there
        if is_remote:
            remedy = "check HOLDFAST_URL, and whether the gateway runs on its host"
        else:
            # If a process listens there, a second `holdfast up` would be refused.
            remedy = "see the output of its `holdfast up`" if was_there else "start one with `holdfast up`"
        super().__init__(f"no gateway answers {'at' if is_remote else 'in'} {home}: {why}; {remedy}")


class ResumesHeld(Refused):
    """Nothing is resumed until an operator allows it, for example because the database is too old."""

    code = "resumes_held"

    def __init__(self, why: str, *, remedy: str = "holdfast store accept") -> None:
        self.why = why
        super().__init__(f"resumes are held: {why}; check the cause, then run `{remedy}`")


class RestartBlocked(Refused):
    """Something could not be made durable before a restart, so the gateway keeps running."""

    code = "restart_blocked"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the gateway does not restart: {why}; fix that, then ask again")


class RestartRefused(Refused):
    """A run asked for a restart, and the process does not restart; the run continues, and `why` says why.

    A function that you pass to `open` as `on_restart` raises this to refuse.
    """

    code = "restart_refused"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the restart was refused: {why}")


class NotReady(Refused):
    """The readiness gate: a restart would interrupt more than the settings allow."""

    code = "not_ready"

    def __init__(self, busy: str, count: int, threshold: int) -> None:
        self.count = count
        self.threshold = threshold
        super().__init__(
            f"{busy} {'is' if count == 1 else 'are'} busy (limit {threshold}). A restart would checkpoint "
            f"and resume {'it' if count == 1 else 'them'}; use --wait or --force."
        )


class StepFailed(HoldfastError):
    """A step raised; every replay raises the same error again.

    It is also an instance of the class that the step raised, if that is builtin or declared in `raises=`.
    """

    code = "step_failed"

    # Defaults on the class, because the class that a step raised may have properties of the same names.
    step: str = ""
    kind: str = ""
    message: str = ""
    facts: dict[str, object] = {}  # noqa: RUF012 - never changed; each instance has its own

    def __init__(self, step: str, kind: str, message: str, facts: dict[str, object] | None = None) -> None:
        self.step = step
        self.kind = kind
        self.message = message
        self.facts = {} if facts is None else facts
        super().__init__(message)

    def __str__(self) -> str:
        why = self.kind if self.message in ("", self.kind) else f"{self.kind}: {self.message}"
        return f"step {self.step} failed: {why}"


class TaskFailed(HoldfastError):
    """The task ended without a result; `failure` says why, as far as it is known."""

    code = "task_failed"

    def __init__(self, task_id: str, status: str, failure: Failure | None = None) -> None:
        self.task_id = task_id
        self.status = status
        self.failure = failure
        why = "" if failure is None else f": {failure.kind}: {failure.message}"
        super().__init__(f"task {task_id} is {status}{why}; for details, `holdfast tasks show {task_id}`")


class FlowFailed(HoldfastError):
    """A flow that is waited for is blocked, or ended without success."""

    code = "flow_failed"

    def __init__(
        self, flow_id: str, status: str, blocked_by_task_id: str | None = None, failure: Failure | None = None
    ) -> None:
        self.flow_id = flow_id
        self.status = status
        self.blocked_by_task_id = blocked_by_task_id
        self.failure = failure
        why = "" if failure is None else f": {failure.message}"
        fix = ""
        if status == "blocked" and blocked_by_task_id is not None:
            why = f" by {blocked_by_task_id}{why}"
            fix = f"; see why with `holdfast tasks show {blocked_by_task_id}`, then retry the flow"
        super().__init__(f"{flow_id} is {status}{why}{fix}")


class Drift(HoldfastError):
    """What an earlier version of the program stored does not match the version that runs now."""

    code = "drift"

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem
        super().__init__(f"{where}: {problem}")


class NotInRun(HoldfastError):
    """Called outside a run, where there is nothing to make durable."""

    code = "not_in_run"

    def __init__(self, what: str, where: str = "inside a task, with the run it was given") -> None:
        self.what = what
        super().__init__(f"{what} was called outside a run; call it {where}")


class RunOver(HoldfastError):
    """A call to a run that has ended; nothing was written."""

    code = "run_over"

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"{run_id} has ended; do not use a run, turn or list after the task's function has returned"
        )


class RetryAfter(HoldfastError):
    """Raise it in a step when a provider asks you to wait: the wait is durable and not an attempt."""

    code = "retry_after"

    def __init__(self, seconds: float, why: str = "the provider asks to wait") -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise BadInput("seconds", f"a number of seconds is needed, not {type(seconds).__name__}")
        if not 0 <= seconds <= MAX_RETRY_AFTER_S:  # also refuses NaN
            raise BadInput("seconds", f"a number from 0 to {MAX_RETRY_AFTER_S:,} is needed")
        self.seconds = float(seconds)
        self.why = why
        super().__init__(f"retry in {self.seconds:g} s: {why}")


class NotDone(HoldfastError):
    """Raise it in an effect that certainly did not happen: then it may be retried."""

    code = "not_done"

    def __init__(self, why: str = "nothing happened") -> None:
        self.why = why
        super().__init__(why)


class SqlFailed(HoldfastError):
    """The database refused a statement of a transactional step: a constraint failed, a table is missing.

    `kind` is the driver's name for the error.
    """

    code = "sql_failed"

    def __init__(self, kind: str, said: str) -> None:
        self.kind = kind
        self.said = said
        super().__init__(f"{kind}: {said}")


class RowDamaged(HoldfastError):
    """A stored record whose bytes do not match its digest; Holdfast does not return it."""

    code = "row_damaged"

    def __init__(self, noun: str, record_id: str, problem: str = "its bytes do not match its digest") -> None:
        self.noun = noun
        self.record_id = record_id
        self.problem = problem
        # The message without its remedy, for `store verify` itself.
        self.finding = f"{noun} {record_id} is damaged: {problem}"
        super().__init__(f"{self.finding}; run `holdfast store verify`")


class PageDamaged(RowDamaged):
    """A page that the database itself found damaged. Its records exist but cannot be read.

    It is not a StoreUnavailable, because retrying does not help. The missing records do not mean that their
    work was not done: do not repeat it.
    """

    def __init__(self, problem: str) -> None:
        super().__init__("page", "of the database", problem)
        self.finding = f"the database is damaged: {problem}"
        self.args = (f"{self.finding}; run `holdfast store verify`, then restore a backup",)


class KeyLost(RowDamaged):
    """A sealed value that no available key opens. Holdfast returns neither it nor a substitute."""

    code = "key_lost"

    def __init__(self, noun: str, record_id: str) -> None:
        super().__init__(noun, record_id, "it is sealed with a key that is not available, or was changed")
        self.finding = f"{noun} {record_id} is sealed with a key that is not available, or was changed"
        remedy = "`holdfast store key show` names the missing key; without that key the value is lost"
        self.args = (f"{self.finding}; {remedy}",)


class FeedGap(HoldfastError):
    """Events after the given position were pruned; read the current state, then follow from there."""

    code = "feed_gap"

    def __init__(self, position: str, oldest: str) -> None:
        self.position = position
        self.oldest = oldest
        super().__init__(
            f"events after {position} were pruned (the oldest kept is {oldest}); follow from the start"
        )


class LedgerFileOpened(HoldfastError):
    """Code in this process tried to open the ledger's file without SQLite."""

    code = "ledger_file_opened"


class StoreUnavailable(HoldfastError):
    """The database did not answer or could not write. Nothing was acknowledged; it is safe to retry."""

    code = "store_unavailable"


class CannotSeal(StoreUnavailable):
    """A value holds a secret, and there is no key to seal it with. Nothing was written."""

    code = "cannot_seal"

    def __init__(self, why: str) -> None:
        super().__init__(f"a value that holds a secret cannot be stored: {why}")


class LedgerReplaced(StoreUnavailable):
    """The database, its -wal or its -shm file was deleted or replaced; writing stopped."""

    code = "ledger_replaced"


class OutcomeUnknown(StoreUnavailable):
    """The answer to a commit was lost and the database is still unreachable: it happened, or it did not.

    It is safe to repeat the write with the same ids, keys and tokens: it finds what it wrote before.
    """

    code = "outcome_unknown"


class SchemaMismatch(HoldfastError):
    """This version of Holdfast cannot use the database's schema."""

    code = "schema_mismatch"


class KeyProblem(HoldfastError):
    """The key of the ledger's sealed values is missing, invalid or wrong."""

    code = "key_unusable"


class KeyMissing(KeyProblem):
    """The ledger has sealed values, or the settings ask for them, and this process has no key."""

    code = "key_missing"


class KeyWrong(KeyProblem):
    """This process has a key, but not the one that the ledger was sealed with."""

    code = "key_wrong"


class SettingsError(HoldfastError):
    """An invalid setting; the message names the key and the fix."""

    code = "settings_error"


class HomeUnusable(SettingsError):
    """The home directory cannot be created, or is not a directory: choose another one."""
