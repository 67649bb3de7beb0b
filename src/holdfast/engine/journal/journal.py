"""Save a step once, with its result; plan, artifacts and decisions beside it, all under the run's fence."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import stat
from datetime import datetime
from pathlib import Path

import msgspec

from holdfast.core.claim import Claim
from holdfast.core.clock import Clock, to_micros
from holdfast.core.errors import BadInput
from holdfast.core.ids import check_id
from holdfast.core.payload import check_name, check_text, encode_payload
from holdfast.core.plan import Plan
from holdfast.core.step import Artifact, ArtifactKind, Note, NoteKind, Step
from holdfast.engine.ledger.inputs import check_choice, check_claim, check_moment, check_plan
from holdfast.store import Store, Tx
from holdfast.store.blobs import is_reference, pack_beside
from holdfast.store.journal import saving_step

MAX_OUTPUT_BYTES = 64 * 1024
_CHUNK = 1024 * 1024


class SavedStep(msgspec.Struct, frozen=True, kw_only=True):
    """The result as it is remembered: that of the first save, whoever made it."""

    result: bytes
    was_saved_before: bool


class Journal:
    """What runs did, written as they do it."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def save_step(
        self,
        claim: Claim,
        name: str,
        result: object,
        *,
        scope: str = "",
        occurrence: str = "1",
        input_digest: bytes | None = None,
        started_at: datetime | None = None,
        plan: Plan | None = None,
    ) -> SavedStep:
        """Remember a step, durably, before this returns; a plan given with it moves in the same commit.

        Raises ClaimLost when the run is no longer ours. A step that was saved before keeps its first result.
        """
        check_claim(claim)
        now = self._clock.now()
        name = check_name("step", name)
        payload = encode_payload(f"result of step {name}", result)
        packed = await pack_beside(payload, self._store.sealing)
        if input_digest is not None and not isinstance(input_digest, bytes):
            raise BadInput("input_digest", f"bytes are needed, not {type(input_digest).__name__}")
        plan = None if plan is None else check_plan(plan)
        step = Step(
            task_id=claim.task_id,
            scope=_checked_scope(scope),
            name=name,
            occurrence=_checked_occurrence(occurrence),
            run_id=claim.run_id,
            seq=to_micros(now),
            input_digest=input_digest,
            result=packed.stored,
            started_us=to_micros(now if started_at is None else check_moment("started_at", started_at)),
            ended_us=to_micros(now),
        )
        save = saving_step(step, claim.fence, self._store.sealing)
        if packed.digest is None and plan is None and not claim.is_alone:
            before = await self._store.write(save)
        else:

            def save_with_company(tx: Tx) -> Step | None:
                tx.blobs.keep(claim.task_id, packed)
                before = save(tx)
                has_moved = plan is not None and tx.journal.save_plan(claim, plan, now=now)
                # To remember what was done before is no progress: it may still be this run that kills.
                if before is None or has_moved:
                    _exonerate(tx, claim, now)
                return before

            before = await self._store.write(save_with_company)
        if before is None:
            return SavedStep(result=payload, was_saved_before=False)
        return SavedStep(result=await self._open(before.result), was_saved_before=True)

    async def _open(self, stored: bytes) -> bytes:
        return await self._store.read(lambda tx: tx.blobs.open(stored)) if is_reference(stored) else stored

    async def find_step(
        self, task_id: str, name: str, *, scope: str = "", occurrence: str = "1"
    ) -> bytes | None:
        """The remembered result, opened; None when the step was never saved. Its occurrence is given as a
        Step has it: that of a program's tenth call is `:10`."""
        check_id("task", task_id)
        # Checked as when it was saved: a name in which something was redacted must find itself again.
        key = (_checked_scope(scope), check_name("step", name), _checked_occurrence(occurrence))

        def read(tx: Tx) -> bytes | None:
            step = tx.journal.find_step(task_id, *key)
            return None if step is None else tx.blobs.open(step.result)

        return await self._store.read(read)

    async def steps(self, task_id: str) -> list[Step]:
        """The journal of a task, in order."""
        check_id("task", task_id)
        return await self._store.read(lambda tx: tx.journal.steps(task_id))

    async def save_plan(self, claim: Claim, plan: Plan) -> None:
        """The ordered steps and what is done of them; its cursor is progress."""
        check_claim(claim)
        checked, now = check_plan(plan), self._clock.now()

        def save_plan(tx: Tx) -> None:
            if tx.journal.save_plan(claim, checked, now=now):
                _exonerate(tx, claim, now)

        await self._store.write(save_plan)

    async def record_file(
        self, claim: Claim, path: Path, *, kind: ArtifactKind = ArtifactKind.FILE, name: str | None = None
    ) -> Artifact:
        """A file (or a diff in a file) that a step left, with its checksum."""
        check_claim(claim)
        if not isinstance(path, Path):
            raise BadInput("artifact", f"a path is needed, not {type(path).__name__}")
        kind = check_choice("kind", kind, ArtifactKind)
        try:
            path, sha256, size = await asyncio.to_thread(_measure, path)
        except OSError as error:
            raise BadInput("artifact", f"{path}: {error.strerror}") from error
        except ValueError as error:
            raise BadInput("artifact", str(error)) from error
        artifact = Artifact(
            name=check_name("artifact", name or path.name),
            kind=kind,
            sha256=sha256,
            size_bytes=size,
            path=check_text("path", str(path)),
            recorded_at=self._clock.now(),
        )
        return await self._record(claim, artifact)

    async def record_output(
        self, claim: Claim, name: str, content: str, *, kind: ArtifactKind = ArtifactKind.OUTPUT
    ) -> Artifact:
        """A computed output or a diff, kept in the ledger itself."""
        check_claim(claim)
        kind = check_choice("kind", kind, ArtifactKind)
        if kind is ArtifactKind.FILE:
            raise BadInput("kind", "a file is recorded by its path")
        name = check_name("artifact", name)
        text = check_text(f"artifact {name}", content, max_bytes=MAX_OUTPUT_BYTES, may_be_empty=True)
        artifact = Artifact(
            name=name,
            kind=kind,
            sha256=hashlib.sha256(text.encode()).hexdigest(),
            size_bytes=len(text.encode()),
            content=text,
            recorded_at=self._clock.now(),
        )
        return await self._record(claim, artifact)

    async def _record(self, claim: Claim, artifact: Artifact) -> Artifact:
        await self._store.write(
            lambda tx: tx.journal.save_artifact(claim, artifact, now=artifact.recorded_at)
        )
        return artifact

    async def decide(self, claim: Claim, text: str) -> Note:
        """A decision worth carrying over."""
        return await self._note(claim, NoteKind.DECISION, check_text("decision", text))

    async def refer(self, claim: Claim, text: str) -> Note:
        """A reference to what a tool knows; never the secret itself."""
        return await self._note(claim, NoteKind.TOOL_CONTEXT, check_text("tool context", text))

    async def _note(self, claim: Claim, kind: NoteKind, text: str) -> Note:
        check_claim(claim)
        note = Note(kind=kind, text=text, written_at=self._clock.now())
        # Its place is its moment: one holder writes, and the same write again finds its place taken.
        seq = to_micros(note.written_at)

        def add_note(tx: Tx) -> None:
            tx.journal.add_note(claim, note, seq=seq)

        await self._store.write(add_note)
        return note


def _exonerate(tx: Tx, claim: Claim, now: datetime) -> None:
    """A suspect that makes progress need not be alone any longer."""
    if claim.is_alone and tx.runs.exonerate(claim.run_id, claim.fence, now=now):
        tx.hint("runs")


def _checked_scope(scope: str) -> str:
    return check_name("scope", scope) if scope != "" else ""


def _checked_occurrence(occurrence: str) -> str:
    return check_name("occurrence", occurrence) if occurrence != "1" else "1"


def _measure(path: Path) -> tuple[Path, str, int]:
    return path.absolute(), *checksum(path)


def checksum(path: Path) -> tuple[str, int]:
    """SHA-256 and size of a file; what is there but no file (a pipe would never end) raises OSError, too."""
    digest, size = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a file", str(path))
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size
