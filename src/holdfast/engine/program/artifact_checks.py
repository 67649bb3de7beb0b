"""Artifacts that are not as their step left them: a follow-up run redoes the step, or asks a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.core.errors import Refused
from holdfast.core.events import EventKind
from holdfast.core.payload import decode_payload, encode_payload
from holdfast.core.step import Artifact, ArtifactState, Step
from holdfast.engine.journal.scopes import Key

if TYPE_CHECKING:
    from holdfast.core.checkpoint import ArtifactReport, SeedContext
    from holdfast.engine.program.program import RunProgram
    from holdfast.store import Tx

_MISSING = "there is no file"


class ArtifactChecks:
    """The artifacts of one resumed task, before its program goes on."""

    def __init__(self, program: RunProgram, seed: SeedContext) -> None:
        self._program = program
        self._live = program.live
        self._past = program.past
        self._seed = seed

    async def heed(self) -> None:
        """Redo the step of a file that is gone, if the step may be repeated; ask about all others. Raises
        Stopping while a person is asked, and Refused if they say stop."""
        for report in self._seed.artifacts:
            if report.state is ArtifactState.SAME:
                continue
            maker = self._maker(report)
            if report.state is ArtifactState.MISSING and maker is not None:
                await self._redo(report, maker)
            else:
                await self._ask(report, maker)

    def _maker(self, report: ArtifactReport) -> tuple[Key, Key] | None:
        """The keys of the record of an artifact and of the step before it, which made it; None if that step
        is an effect, or is not in the journal any more."""
        for steps in self._past.steps.values():
            for key, record in steps.items():
                if record.name == "artifact" and _named(record) == report.name:
                    before = [
                        (step.seq, other, step.is_effect)
                        for other, step in steps.items()
                        if step.input_digest is not None and step.seq < record.seq
                    ]
                    if not before:
                        return None
                    _, maker, is_effect = max(before)
                    return None if is_effect or maker in self._past.effects else (key, maker)
        return None

    async def _redo(self, report: ArtifactReport, maker: tuple[Key, Key]) -> None:
        """Forget the step and the record of its artifact: the program does both again."""
        key = ("", "artifact!redone", f"{self._seed.checkpoint_id}:{report.name}")
        if self._past.find(key) is not None:
            return
        claim = self._live.claim
        keys = [*maker, *self._past.beside(maker[1])]

        def redo(tx: Tx) -> None:
            for one in keys:
                tx.journal.forget_step(claim, *one)
            self._tell(tx, report, "redo")

        await self._program.waits.note(key, encode_payload("redone", maker[1][1]), redo)
        for one in keys:
            self._past.forget(one)

    async def _ask(self, report: ArtifactReport, maker: tuple[Key, Key] | None) -> None:
        found = report.found_sha256 or _MISSING
        # The same difference is asked once, whatever it was answered.
        key = ("", "artifact!found", f"{report.name}:{report.expected_sha256[:16]}:{found[:16]}")
        done = (key[0], "artifact!settled", key[2])
        if self._past.find(done) is not None:
            return
        said = (
            f"{report.name} ({report.path}) is {report.state.value} since it was saved: its checksum was "
            f"{report.expected_sha256}, now {found}. Keep what is there"
        )
        choices = ("keep", "stop") if maker is None else ("keep", "redo", "stop")
        question = f"{said}, or stop?" if maker is None else f"{said}, redo the step that made it, or stop?"
        payload = await self._program.waits.ask(
            key, question, choices=choices, lasts=None, default=None, has_default=False
        )
        answer = str(decode_payload(payload))
        if answer == "stop":
            raise Refused(f"{report.name} is {report.state.value}, and a person said stop")
        if answer == "redo" and maker is not None:
            await self._redo(report, maker)
        await self._program.waits.note(
            done, encode_payload("answer", answer), lambda tx: self._tell(tx, report, answer)
        )

    def _tell(self, tx: Tx, report: ArtifactReport, decision: str) -> None:
        tx.emit(
            EventKind.ARTIFACT_DIFFERED,
            self._live.run.id,
            at=self._live.clock.now(),
            task_id=self._live.task.id,
            name=report.name,
            found=report.state.value,
            expected_sha256=report.expected_sha256,
            found_sha256=report.found_sha256,
            decision=decision,
        )


def _named(step: Step) -> str | None:
    try:
        return msgspec.json.decode(step.result, type=Artifact).name
    except msgspec.DecodeError:
        return None
