"""Every exception Holdfast raises, with the hierarchy drawn here.

HoldfastError
├── NotFound                no record with that id (also: not yours to see)
│   ├── NoLedger                nothing was ever written at that place
│   └── Pruned                  the task ended, and retention removed it with its journal
├── AmbiguousId             an id prefix that fits several records
├── BadInput                wrong type, empty, too long, control characters, too deep
│   └── PayloadTooLarge         over the cap; nothing was stored
├── Conflict                the world changed first
│   ├── IllegalMove             the status table does not allow it
│   ├── ClaimLost               someone holds a newer fence
│   ├── RevisionMismatch        the flow moved on
│   └── KeyConflict             the dedup key belongs to a task with other arguments
├── CheckpointError
│   ├── CheckpointNotSaved      the drain must stop
│   └── CheckpointUnreadable    becomes failed_resume, with the reason
├── Refused
│   ├── NotYours                the record belongs to another owner
│   ├── BadSignature            what came in was not signed with the channel's secret, or too long ago
│   ├── EffectsInTheWay         a fork would pass effects that have happened
│   ├── HomeInUse               another process holds the home directory
│   ├── GatewaySilent           the gateway that should do it does not answer
│   ├── Draining                messages are not queued while the gateway restarts, say the settings
│   ├── NotReady                a restart would interrupt more than the settings allow
│   ├── RestartBlocked          something could not be saved before a restart
│   ├── RestartRefused          a run asked for a restart, and its process goes on without one
│   └── ResumesHeld             the database is older than its mark; a person must accept it
├── StepFailed              a step raised, and was not or will not be tried again
├── TaskFailed              whoever waited for a task's result learns that there is none
├── Drift                   what is remembered does not fit the program of today
├── NotInRun                called where no run is under way
├── RunOver                 a run was used after its end
├── RetryAfter              raised by a step: come back later, this was no attempt
├── NotDone                 raised by an effect: nothing happened, that is certain
├── SqlFailed               the database refused a statement of a transactional step's own
├── RowDamaged              a stored record does not match its digest
│   ├── PageDamaged             a page of the database cannot be read: which records it held is not known
│   └── KeyLost                 a sealed value that no key at hand opens
├── FeedGap                 the events after that position were pruned
├── LedgerFileOpened        something in this process tried to open the ledger's file
├── StoreUnavailable        the database did not answer; safe to retry
│   ├── CannotSeal              a value holds a secret, and there is no key to seal it with
│   ├── LedgerReplaced          the database file was deleted or replaced under us
│   └── OutcomeUnknown          the answer to a commit was lost, and the database is still away
├── SchemaMismatch          the database was written by a newer Holdfast, or was altered
├── KeyProblem              the key of sealed values cannot be used as it is
│   ├── KeyMissing              the ledger has sealed values, and there is no key here
│   └── KeyWrong                the key here is not the ledger's
└── SettingsError           at start, with the key and the fix
    └── HomeUnusable            the home directory cannot be made or is none
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from holdfast.core.task import Failure


MAX_RETRY_AFTER_S = 366 * 86_400


class HoldfastError(Exception):
    """Base of everything Holdfast raises; `code` is stable and may be matched by programs."""

    code: ClassVar[str] = "error"


# Nouns without a list of their own: the command that shows them, or what they are part of.
_SHOWN_BY = {
    "channel": "config explain",
    "delivery": "deliveries list",
    "effect": "tasks list",
    "firing": "events",
    "flow": "tasks list",
    "message": "sessions list",
    "restart": "gateway restarts",
    "run": "tasks list",
    "setting": "config explain",
    "wake": "events",
}


class NotFound(HoldfastError):
    """No such record, as far as the asker may know."""

    code = "not_found"

    def __init__(self, noun: str, record_id: str) -> None:
        self.noun = noun
        self.record_id = record_id
        command = _SHOWN_BY.get(noun, f"{noun}s list")
        super().__init__(f"no {noun} {record_id!r}; `holdfast {command}` shows what there is")


class NoLedger(NotFound):
    """There is no ledger at that place, and looking for one does not make it."""

    code = "no_ledger"

    def __init__(self, where: str) -> None:
        super().__init__("ledger", where)
        self.args = (f"no ledger at {where} yet; the first task makes it, or `holdfast store migrate`",)


class Pruned(NotFound):
    """The task ended, and retention has removed it since: there is nothing to go on from."""

    code = "pruned"

    def __init__(self, task_id: str) -> None:
        super().__init__("task", task_id)
        text = f"task {task_id} ended, and retention has removed it with its journal: it cannot go on; "
        self.args = (f"{text}start it anew, under another key",)


class AmbiguousId(HoldfastError):
    """A prefix that fits more than one record."""

    code = "ambiguous_id"

    def __init__(self, noun: str, prefix: str, matches: list[str]) -> None:
        self.noun = noun
        self.prefix = prefix
        self.matches = matches
        super().__init__(f"{prefix!r} fits several {noun}s ({', '.join(matches)}, …); give more characters")


class BadInput(HoldfastError):
    """A value that cannot be stored as it is; nothing was changed."""

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


class Conflict(HoldfastError):
    """The world changed first; read again before deciding."""

    code = "conflict"


class IllegalMove(Conflict):
    """The table of moves has no way from one status to the other."""

    code = "illegal_move"

    def __init__(self, noun: str, record_id: str, status: str, to: str) -> None:
        self.noun = noun
        self.record_id = record_id
        self.status = status
        self.to = to
        super().__init__(f"{noun} {record_id} is {status} and cannot become {to}")


class ClaimLost(Conflict):
    """A write by a holder whose fence is no longer the newest; it changed nothing."""

    code = "claim_lost"

    def __init__(self, record_id: str, fence: int) -> None:
        self.record_id = record_id
        self.fence = fence
        super().__init__(
            f"the claim on {record_id} with fence {fence} is lost: it ended or someone else holds it now; "
            "stop working on it, nothing was written"
        )


class RevisionMismatch(Conflict):
    """An update that names a revision which is no longer the newest."""

    code = "revision_mismatch"

    def __init__(self, record_id: str, expected: int, found: int) -> None:
        self.record_id = record_id
        self.expected = expected
        self.found = found
        super().__init__(f"{record_id} is at revision {found}, not {expected}; read it again and decide anew")


class KeyConflict(Conflict):
    """The same dedup key with another task name, other arguments or another goal."""

    code = "key_conflict"

    def __init__(self, key: str, task_id: str, *, of_goal: bool = False) -> None:
        self.key = key
        self.task_id = task_id
        what = "another goal" if of_goal else "another name or other arguments"
        fix = "the goal of that one, or none" if of_goal else "the same arguments"
        super().__init__(
            f"key {key!r} belongs to {task_id}, which was created with {what}; use another key, or {fix}"
        )


class CheckpointError(HoldfastError):
    """Something about a checkpoint went wrong."""

    code = "checkpoint_error"


class CheckpointNotSaved(CheckpointError):
    """A checkpoint could not be made durable; whoever wanted to stop must not."""

    code = "checkpoint_not_saved"

    def __init__(self, run_id: str, why: str) -> None:
        self.run_id = run_id
        self.why = why
        super().__init__(f"no checkpoint of {run_id} was saved: {why}")


class CheckpointUnreadable(CheckpointError):
    """A stored checkpoint that must not be executed; `problem` says what is wrong with it."""

    code = "checkpoint_unreadable"

    def __init__(self, checkpoint_id: str, problem: str) -> None:
        self.checkpoint_id = checkpoint_id
        self.problem = problem
        super().__init__(f"checkpoint {checkpoint_id} is not usable: {problem}")


class Refused(HoldfastError):
    """Asked for, understood, and not done."""

    code = "refused"


class NotYours(Refused):
    """The record belongs to another owner."""

    code = "not_yours"

    def __init__(self, noun: str, record_id: str, owner: str) -> None:
        self.noun = noun
        self.record_id = record_id
        self.owner = owner
        super().__init__(f"{noun} {record_id} does not belong to {owner!r}; only its owner may change it")


class BadSignature(Refused):
    """What came in was not signed as its channel signs, or too long ago; nothing was stored."""

    code = "bad_signature"

    def __init__(self, channel: str, why: str) -> None:
        self.channel = channel
        self.why = why
        super().__init__(f"channel {channel}: {why}")


class EffectsInTheWay(Refused):
    """A fork would go back to before effects that have happened, or may have; nothing was changed."""

    code = "effects_in_the_way"

    def __init__(self, task_id: str, effects: list[str], remedy: str) -> None:
        self.task_id = task_id
        self.effects = effects
        shown = ", ".join(effects[:5]) + (f" and {len(effects) - 5} more" if len(effects) > 5 else "")
        super().__init__(f"{task_id} has done since: {shown}; {remedy}")


class HomeInUse(Refused):
    """Another process holds the home directory."""

    code = "home_in_use"

    def __init__(self, *, home: str, pid: int | None) -> None:
        self.home = home
        self.pid = pid
        who = f"process {pid}" if pid is not None else "another process"
        super().__init__(f"{who} holds {home}; stop it, ask it, or choose another --home")


class Draining(Refused):
    """The gateway is about to restart, and the settings say that messages are not queued meanwhile."""

    code = "draining"

    def __init__(self) -> None:
        super().__init__("the gateway drains, and drain_queue_messages is off; send it again in a moment")


class GatewaySilent(Refused):
    """Only a running gateway can do it, and none answers."""

    code = "gateway_silent"

    def __init__(self, home: str, why: str, *, was_there: bool = True) -> None:
        self.home = home
        self.why = why
        # False when nobody listens at all.
        self.was_there = was_there
        # Where somebody listens, another `holdfast up` would be refused.
        remedy = "what its `holdfast up` says tells more" if was_there else "`holdfast up` starts one"
        super().__init__(f"no gateway answers in {home}: {why}; {remedy}")


class ResumesHeld(Refused):
    """Nothing is resumed until a person allows it: the database is older than its mark, say."""

    code = "resumes_held"

    def __init__(self, why: str, *, remedy: str = "holdfast store accept") -> None:
        self.why = why
        super().__init__(f"resumes are held: {why}; look at it, then `{remedy}`")


class RestartBlocked(Refused):
    """Something could not be made durable before a restart, so the gateway goes on working."""

    code = "restart_blocked"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the gateway does not restart: {why}; see to that, then ask again")


class RestartRefused(Refused):
    """A run asked for a restart, and the process does not restart; the run goes on, and `why` says why.

    A function that is given to `open` as `on_restart` raises it to refuse.
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
    """A step raised; the same is raised again on every replay.

    It is also an instance of the class the step raised, when that is builtin or declared in `raises=`.
    """

    code = "step_failed"

    # Defaults on the class, because the class a step raised may have properties of the same names.
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
        super().__init__(f"task {task_id} is {status}{why}; `holdfast tasks show {task_id}` tells the story")


class Drift(HoldfastError):
    """What was stored by an earlier program does not fit the one that runs now."""

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
    """A run that has ended takes no more calls; nothing was written."""

    code = "run_over"

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"{run_id} is over; keep no run, turn or list longer than the task's own function")


class RetryAfter(HoldfastError):
    """Raise it in a step when a provider asks for patience: a durable wait, and no attempt."""

    code = "retry_after"

    def __init__(self, seconds: float, why: str = "the provider asks for patience") -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise BadInput("seconds", f"a number of seconds is needed, not {type(seconds).__name__}")
        if not 0 <= seconds <= MAX_RETRY_AFTER_S:  # also refuses NaN
            raise BadInput("seconds", f"a number from 0 to {MAX_RETRY_AFTER_S:,} is needed")
        self.seconds = float(seconds)
        self.why = why
        super().__init__(f"try again in {self.seconds:g} s: {why}")


class NotDone(HoldfastError):
    """Raise it in an effect that is certain that nothing happened: then it may be tried again."""

    code = "not_done"

    def __init__(self, why: str = "nothing happened") -> None:
        self.why = why
        super().__init__(why)


class SqlFailed(HoldfastError):
    """A statement of a transactional step that the database refused: a constraint, a table that is missing.

    `kind` is what the driver calls it.
    """

    code = "sql_failed"

    def __init__(self, kind: str, said: str) -> None:
        self.kind = kind
        self.said = said
        super().__init__(f"{kind}: {said}")


class RowDamaged(HoldfastError):
    """A stored record whose bytes do not match its digest; it is not handed out."""

    code = "row_damaged"

    def __init__(self, noun: str, record_id: str, problem: str = "its bytes do not match its digest") -> None:
        self.noun = noun
        self.record_id = record_id
        self.problem = problem
        # Without what to do next, for a command that has just done it.
        self.finding = f"{noun} {record_id} is damaged: {problem}"
        super().__init__(f"{self.finding}; run `holdfast store verify`")


class PageDamaged(RowDamaged):
    """A page that the database itself found damaged. Whatever it held is not absent: it cannot be read.

    To ask again does not help, so it is no StoreUnavailable; and nothing may be done again because of it.
    """

    def __init__(self, problem: str) -> None:
        super().__init__("page", "of the database", problem)
        self.finding = f"the database is damaged: {problem}"
        self.args = (f"{self.finding}; run `holdfast store verify`, then restore a backup",)


class KeyLost(RowDamaged):
    """A sealed value that no key at hand opens. It is not handed out, and nothing is made up in its place."""

    code = "key_lost"

    def __init__(self, noun: str, record_id: str) -> None:
        super().__init__(noun, record_id, "it is sealed with a key that is not at hand, or was changed")
        self.finding = f"{noun} {record_id} is sealed with a key that is not at hand, or was changed"
        remedy = "`holdfast store key show` names the key that it needs; without that key the value is lost"
        self.args = (f"{self.finding}; {remedy}",)


class FeedGap(HoldfastError):
    """Events after the given position were pruned; read the present, then follow from there."""

    code = "feed_gap"

    def __init__(self, position: str, oldest: str) -> None:
        self.position = position
        self.oldest = oldest
        super().__init__(
            f"events after {position} were pruned (the oldest kept is {oldest}); follow from the start"
        )


class LedgerFileOpened(HoldfastError):
    """Something in this process tried to open the ledger's file behind SQLite's back."""

    code = "ledger_file_opened"


class StoreUnavailable(HoldfastError):
    """The database did not answer or could not write. Nothing was acknowledged; the same may be tried."""

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
    """The answer to a commit was lost and the database is still away: it happened, or it did not.

    The same write with the same ids, keys and tokens may be run again: it finds what it did.
    """

    code = "outcome_unknown"


class SchemaMismatch(HoldfastError):
    """The database's schema is not one this Holdfast can use."""

    code = "schema_mismatch"


class KeyProblem(HoldfastError):
    """The key that opens the ledger's sealed values is not there, not usable or not the right one."""

    code = "key_unusable"


class KeyMissing(KeyProblem):
    """The ledger has sealed values, or is to have some, and there is no key here."""

    code = "key_missing"


class KeyWrong(KeyProblem):
    """The key here is not the one that the ledger was sealed with."""

    code = "key_wrong"


class SettingsError(HoldfastError):
    """A setting that cannot be used, with the key and the fix."""

    code = "settings_error"


class HomeUnusable(SettingsError):
    """The home directory cannot be made, or is no directory: choose another one."""
