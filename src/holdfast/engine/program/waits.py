"""Sleep, ask, receive, await children: a run that waits holds no claim until it is woken."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import BadInput, ClaimLost, IllegalMove
from holdfast.core.events import EventKind
from holdfast.core.ids import check_id, new_question_id
from holdfast.core.jumps import TOLERANCE
from holdfast.core.payload import check_name, check_text, decode_payload, encode_payload
from holdfast.core.program_records import Question
from holdfast.core.redaction import redact_text
from holdfast.core.step import Step, failed_payload
from holdfast.core.task import Failure, Task
from holdfast.core.transitions import TaskStatus
from holdfast.engine.claims.boots import waits_for_boot
from holdfast.engine.claims.claims import NEVER, follow, was_given_up
from holdfast.engine.journal.scopes import Key, TaskHistory
from holdfast.engine.ledger.ledger import NewTask, creating
from holdfast.engine.program.live_run import LiveRun
from holdfast.engine.program.run_phase import StopReason
from holdfast.store import Tx, Write
from holdfast.store.blobs import pack, pack_beside

# A wait that ends sooner than this keeps the program in memory.
STAY_LOADED = timedelta(seconds=30)
MAX_REASON_CHARS = 100


class Waits:
    """The waits of one run. What arrives is consumed in the write that journals it."""

    def __init__(self, live: LiveRun, past: TaskHistory) -> None:
        self._live = live
        self._past = past

    async def sleep_until(
        self,
        key: Key,
        until: datetime,
        act: Callable[[Tx], object] = lambda _tx: None,
        *,
        why: str | None = None,
    ) -> None:
        """Sleep until then, counted from the first call: a restart does not begin it anew."""
        found = self._past.find(key)
        if found is None:
            payload = encode_payload("until", until.isoformat())
            found = await self.note(key, payload, act)
        until = datetime.fromisoformat(str(decode_payload(found.result)))
        await self._pass_time(await self._recounted(key, found, until), why)

    async def _recounted(self, key: Key, began: Step, due_at: datetime) -> datetime:
        """When a wait is over. If it began while the clock was ahead, its length counts from now, once."""
        now = self._live.clock.now()
        while (began_at := from_micros(began.started_us)) > now + TOLERANCE:
            due_at = now + (due_at - began_at)
            key = (key[0], f"{key[1]}!recounted", key[2])
            found = self._past.find(key)
            if found is None:
                found = await self.note(key, encode_payload("due", due_at.isoformat()), lambda _tx: None)
            began, due_at = found, datetime.fromisoformat(str(decode_payload(found.result)))
        return due_at

    async def _pass_time(self, until: datetime, why: str | None) -> None:
        """A short sleep stays in memory; a long one gives up the claim."""
        waits_on = "sleep" if why is None else f"sleep:{why}"
        while (remaining := until - self._live.clock.now()) > timedelta(0):
            self._live.check()
            if remaining > STAY_LOADED:
                await self._give_up(waits_on, until, TaskStatus.WAITING, look=lambda _tx: None)
            await self._live.sleep(remaining.total_seconds())
        self._live.check()
        deadline = self._live.deadline
        if deadline is not None and deadline <= self._live.clock.now():
            raise TimeoutError("the task has taken longer than it may")

    async def until(
        self,
        key: Key,
        *,
        waits_on: str,
        look: Callable[[Tx], bytes | None],
        due_at: datetime | None = None,
        late: bytes | None = None,
        when_late: Callable[[Tx], object] = lambda _tx: None,
    ) -> bytes:
        """What `look` finds, journalled under the key; `late` when it has not come by the due time."""
        found = self._past.find(key)
        if found is not None:
            return found.result
        self._live.check()
        now = self._live.clock.now()

        def look_or_be_late(tx: Tx) -> bytes | None:
            payload = look(tx)
            if payload is None and due_at is not None and due_at <= now:
                when_late(tx)
                return late
            return payload

        payload = await self._give_up(waits_on, due_at, TaskStatus.WAITING, look=look_or_be_late, key=key)
        self._past.put(key, self.step(key, payload, now))
        return payload

    async def note(self, key: Key, payload: bytes, act: Callable[[Tx], object]) -> Step:
        """Do something in the ledger and remember under the key that it was done, in one commit.

        If another coroutine of this run was first, its result counts.
        """
        live, now = self._live, self._live.clock.now()
        packed = await pack_beside(payload, live.sealing)
        step = self.step(key, packed.stored, now)

        def note(tx: Tx) -> bytes:
            tx.journal.require(live.claim)
            # First, because a second writer waits for the first one here.
            if not tx.journal.put_step(step):
                before = tx.journal.find_step(live.claim.task_id, *key)
                assert before is not None
                return tx.blobs.open(before.result)
            tx.blobs.keep(live.claim.task_id, packed)
            act(tx)
            live.note_progress(tx, now)
            return payload

        step = msgspec.structs.replace(step, result=await live.write(note))
        self._past.put(key, step)
        return step

    async def park(self, waits_on: str, look: Callable[[Tx], bytes | None]) -> None:
        """Wait for a person's review; the task becomes `needs_review`."""
        await self._give_up(waits_on, None, TaskStatus.NEEDS_REVIEW, look=look)

    async def boot_end(self, boot_id: str, until: datetime) -> None:
        """Until the ledger knows that a boot has ended, or until the given time."""
        now = self._live.clock.now()

        def look(tx: Tx) -> bytes | None:
            # Locked, so that an end that is being recorded is seen, and a later one finds this run waiting.
            boot = tx.boots.lock(boot_id)
            has_ended = boot is not None and boot.ended_at is not None
            return b"null" if has_ended or now >= until else None

        await self._give_up(waits_for_boot(boot_id), until, TaskStatus.WAITING, look=look)

    async def _give_up(
        self,
        waits_on: str,
        due_at: datetime | None,
        status: TaskStatus,
        *,
        look: Callable[[Tx], bytes | None],
        key: Key | None = None,
    ) -> bytes:
        """What it waits for, if it is there; otherwise give up the claim and unwind. Both in one write, so
        that nothing can arrive in between and be missed."""
        live = self._live
        # To unwind cuts short what else this run does; the outcome of an effect would be unknown.
        await live.until_idle()
        live.check()
        now, waits_on = live.clock.now(), check_name("waits_on", waits_on)
        claim = live.claim

        def wait(tx: Tx) -> bytes | None:
            before = None if key is None else tx.journal.find_step(claim.task_id, *key)
            if before is not None:
                return tx.blobs.open(before.result)
            if not tx.journal.holds(claim.run_id, claim.task_id, claim.fence):
                if was_given_up(tx, claim):
                    return None
                raise ClaimLost(claim.run_id, claim.fence)
            # A sender locks the task, too: what it sends comes before this look, or finds the run waiting.
            tx.tasks.lock(claim.task_id)
            payload = look(tx)
            if payload is not None:
                if key is not None:
                    packed = pack(payload, tx.sealing)
                    tx.blobs.keep(claim.task_id, packed)
                    tx.journal.put_step(self.step(key, packed.stored, now))
                    live.note_progress(tx, now)
                return payload
            due = min(one for one in (due_at, live.deadline, NEVER) if one is not None)
            if not tx.runs.wait(claim.run_id, claim.fence, waits_on=waits_on, due_at=due, now=now):
                raise ClaimLost(claim.run_id, claim.fence)
            tx.emit(EventKind.RUN_WAITED, claim.run_id, at=now, task_id=claim.task_id, waits_on=waits_on)
            follow(tx, claim, status, now=now, waits_on=waits_on)
            if live.task.origin is not None:
                from holdfast.engine.ledger.updates import tell_requester

                tell_requester(tx, live.task, status, run_id=claim.run_id, now=now)
            if status is TaskStatus.NEEDS_REVIEW and live.task.session_key is not None:
                from holdfast.engine.conversation.transcripts import tell_review  # few tasks have a session

                tell_review(tx, live.task.session_key, live.task, waits_on.partition(":")[2], now=now)
            return None

        payload = await live.write(wait)
        if payload is None:
            raise live.give_up(StopReason.WAITING)
        return payload

    def step(self, key: Key, stored: bytes, now: datetime) -> Step:
        scope, name, occurrence = key
        micros = to_micros(now)
        return Step(
            task_id=self._live.claim.task_id,
            scope=scope,
            name=name,
            occurrence=occurrence,
            run_id=self._live.claim.run_id,
            seq=micros,
            result=stored,
            started_us=micros,
            ended_us=micros,
        )

    # --- questions

    async def ask(
        self,
        key: Key,
        question: str,
        *,
        choices: tuple[str, ...] | None,
        lasts: timedelta | None,
        default: object,
        has_default: bool,
    ) -> bytes:
        """A person's answer."""
        live, asked = self._live, (key[0], f"{key[1]}!asked", key[2])
        found = self._past.find(asked)
        if found is None:
            now = live.clock.now()
            fallback = encode_payload("default", default) if has_default else None
            new = Question(
                id=new_question_id(now),
                task_id=live.claim.task_id,
                run_id=live.claim.run_id,
                question=check_text("question", question),
                choices=choices,
                default_answer=fallback,
                asked_at=now,
                due_at=None if lasts is None else now + lasts,
            )

            def open_question(tx: Tx) -> None:
                tx.questions.create(new)
                tx.emit(EventKind.QUESTION_ASKED, new.id, at=now, task_id=new.task_id, question=new.question)
                if live.task.session_key is not None:
                    from holdfast.engine.conversation.transcripts import tell_question  # see above

                    tell_question(tx, live.task.session_key, new)

            due = None if new.due_at is None else new.due_at.isoformat()
            found = await self.note(asked, encode_payload("question", [new.id, due]), open_question)
        question_id, due = msgspec.json.decode(found.result, type=tuple[str, str | None])
        due_at = None
        if due is not None:
            due_at = await self._recounted(asked, found, datetime.fromisoformat(due))
        default_answer = encode_payload("default", default)
        # Redacted before it is cut: half of a secret looks like none.
        late = (
            default_answer if has_default else late_failure(f"an answer to {redact_text(question)[:200]!r}")
        )

        def close(tx: Tx) -> None:
            # Close the question: an answer would come too late.
            tx.questions.answer(question_id, default_answer, by="timeout", now=live.clock.now())

        return await self.until(
            key,
            waits_on=f"answer:{question_id}",
            look=lambda tx: tx.questions.get(question_id).answer,
            due_at=due_at,
            late=late,
            when_late=close,
        )

    # --- mail

    async def receive(self, key: Key, topic: str, *, lasts: timedelta | None, late: bytes | None) -> bytes:
        """The oldest message of a topic that was not received yet."""
        live, topic = self._live, check_name("topic", topic)
        began = (key[0], f"{key[1]}!began", key[2])
        due_at: datetime | None = None
        if lasts is not None:
            found = self._past.find(began)
            if found is None:
                due = (live.clock.now() + lasts).isoformat()
                found = await self.note(began, encode_payload("due", due), lambda _tx: None)
            due_at = datetime.fromisoformat(str(decode_payload(found.result)))
            due_at = await self._recounted(began, found, due_at)
        now, task_id = live.clock.now(), live.claim.task_id

        def look(tx: Tx) -> bytes | None:
            mail = tx.mail.next_of(task_id, topic)
            if mail is None:
                return None
            tx.mail.take(task_id, mail.seq, now=now)
            return tx.blobs.open(mail.body)

        late = late_failure(f"mail on {topic!r}") if late is None else late
        return await self.until(key, waits_on=f"mail:{topic}", look=look, due_at=due_at, late=late)

    # --- children

    async def spawn(self, key: Key, new: NewTask) -> str:
        """Start a child once: created and journalled in one commit."""
        live, now = self._live, self._live.clock.now()
        creating([new], now=now)  # so that a mistake shows before the transaction

        def spawn(tx: Tx) -> str:
            tx.journal.require(live.claim)
            before = tx.journal.find_step(live.claim.task_id, *key)
            if before is not None:
                return str(decode_payload(before.result))
            from holdfast.engine.recovery.reopen import go_on, may_go_on

            (child,) = creating([new], now=now)(tx)
            if may_go_on(child):
                # The step was forgotten because the child failed, and the task is retried: retry the child
                # from where it was, because its steps must not be done twice.
                go_on(tx, tx.tasks.lock(child.id), now=now)
            tx.journal.put_step(self.step(key, msgspec.json.encode(child.id), now))
            return child.id

        child_id = await live.write(spawn)
        self._past.put(key, self.step(key, msgspec.json.encode(child_id), now))
        return child_id

    async def child_result(self, key: Key, child_id: str) -> bytes:
        """The stored result of a child that has ended, or its failure."""

        def look(tx: Tx) -> bytes | None:
            child = tx.tasks.lock(child_id)  # its end comes before this look, or finds this run waiting
            return ended_as(tx, child) if child.has_ended else None

        return await self.until(key, waits_on=f"child:{child_id}", look=look)

    async def children_end(self) -> None:
        """Until no attached child is left."""
        task_id = self._live.claim.task_id

        def look(tx: Tx) -> bytes | None:
            living = tx.tasks.children(task_id, only_alive=True)
            return None if any(not tx.tasks.lock(child.id).has_ended for child in living) else b"null"

        await self._give_up("children", None, TaskStatus.WAITING, look=look)


def check_reason(reason: str) -> str:
    """What a task is woken for, in the words of its author. Raises BadInput."""
    if isinstance(reason, str) and not 0 < len(reason.strip()) <= MAX_REASON_CHARS:
        raise BadInput("reason", f'a few words are needed, at most {MAX_REASON_CHARS} characters: "poll CI"')
    return check_name("reason", reason)


def late_failure(what: str) -> bytes:
    failure = Failure(kind="TimeoutError", message=f"{what} did not come in time")
    return failed_payload(failure)


def ended_as(tx: Tx, task: Task) -> bytes:
    """How a task ended, as its parent journals it."""
    if task.status is TaskStatus.SUCCEEDED:
        # Raises if no key opens the result.
        result = task.checked().result
        return b"null" if result is None else tx.blobs.open(result)
    failure = task.failure or Failure(kind=task.status.value, message=f"{task.id} is {task.status.value}")
    facts = {**failure.facts, "task_id": task.id, "status": task.status.value}
    return failed_payload(Failure(kind=failure.kind, message=failure.message, facts=facts))


def sending(task_id: str, *, topic: str, body: object, sender: str, key: str, now: datetime) -> Write[bool]:
    """The write that puts a message into a task's mailbox once per key, and wakes its run."""
    check_id("task", task_id)
    topic, sender, key = check_name("topic", topic), check_name("sender", sender), check_name("key", key)
    encoded = encode_payload("body", body)

    def send(tx: Tx) -> bool:
        packed = pack(encoded, tx.sealing)
        task = tx.tasks.lock(task_id)
        if task.has_ended:
            raise IllegalMove("task", task_id, task.status.value, "sent a message")
        tx.blobs.keep(task_id, packed)
        is_new = tx.mail.send(task_id, topic=topic, body=packed.stored, sender=sender, key=key, now=now)
        if is_new:
            tx.emit(EventKind.MAIL_SENT, task_id, at=now, task_id=task_id, topic=topic, sender=sender)
            from holdfast.engine.conversation.questions import wake_waiting

            wake_waiting(tx, task_id, f"mail:{topic}", now)
        return is_new

    return send
