"""Agents that are commands: the message on standard input, the answer on standard output, with a receipt.

With a run_timeout_s, a command may hand over a checkpoint instead of an answer: a wake starts it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from holdfast.config import in_home
from holdfast.config.sections import AgentSettings, Config
from holdfast.core.agent_checkpoint import (
    CHECKPOINT_MARK,
    CHECKPOINT_VARIABLE,
    find_checkpoint,
    split_output,
)
from holdfast.core.checkpoint import ArtifactReport, SeedContext
from holdfast.core.errors import BadInput, SettingsError
from holdfast.core.message import Envelope
from holdfast.core.payload import clean_text
from holdfast.core.secret import Secret, secret
from holdfast.core.smart_wake import SmartWake
from holdfast.core.wake_contract import ResumePacket, ResumeStep, TaskDocument
from holdfast.engine.program.author_api import Run
from holdfast.runtimes.agent_done import checks_of, undone, unmet_criteria
from holdfast.runtimes.command_turns import AgentTurn, TurnInput, speak_once, turn_input
from holdfast.runtimes.contract import AgentFailed, AgentInput, Speak
from holdfast.runtimes.handover import HandedDocument, hand_over, tell_refused
from holdfast.tools.commands import ShellResult
from holdfast.tools.witness import CommandWarning

# Characters that a reader may take for a line break.
_BREAKS = ("\x85", "\u2028", "\u2029")
_SHOWN_CHARS = 500
# No message can hold a line that begins with [System].
_GUIDE = (
    "[System] You are task {task_id}, and may work on it for {seconds} seconds at a time. If you cannot "
    "finish in time, stop earlier and end your answer with one line that begins with {mark}, then a space, "
    "then one JSON object with the fields task_id, goal, status (waiting; or blocked, done, failed), "
    "current_step, progress_pct, last_completed, next_actions, artifacts, errors (the last four are lists of "
    "texts), retry_count and updated_at (such as 2026-03-01T12:00:00Z). You are started again later with "
    "this object, and go on with next_actions. If you can write files, also write it to the file that the "
    "variable {variable} names, after each step.\n\n"
)


class AgentPacket(ResumePacket, frozen=True, kw_only=True, rename={"wake_mode": "wakeMode"}):
    """The resume packet of a command: also the checkpoint that it handed over, and the answer of a person to
    a command that was blocked."""

    document: TaskDocument
    artifacts: tuple[ArtifactReport, ...] = ()
    answer: str | None = None


class CommandInput(msgspec.Struct, frozen=True, kw_only=True):
    """What a command with `stdin = "json"` reads: the message, and what is known of an interruption."""

    message: Envelope
    # The same as `run.resumed`; null unless an interrupted run goes on.
    resumed: SeedContext | None = None
    # Set if the command has handed over a checkpoint before.
    packet: AgentPacket | None = None


class StopWarning(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="stop_soon"):
    """The line that a command with `warn = "stdin"` reads before its time is over."""

    reason: str = "run_timeout"
    seconds_left: float
    task_id: str


class Cycle(msgspec.Struct, frozen=True, kw_only=True):
    """Where a command stands before it is started: nowhere, or at the checkpoint that it handed over."""

    document: TaskDocument | None = None
    # What a person answered to a command that was blocked.
    answer: str | None = None


def secret_names(config: Config) -> frozenset[str]:
    """The variables that the settings name as secrets; an agent gets only those that its `env` names."""
    passed = {ours for agent in config.agents.values() for ours in agent.env.values()}
    signed = {channel.secret_env for channel in config.channels.values()}
    borne = {token.token_env for token in config.tokens.values()}
    declared = {secret.env for secret in config.secrets.values()}
    return frozenset(one for one in (*passed, *signed, *borne, *declared) if one is not None)


def speaks_by_command(
    name: str,
    settings: AgentSettings,
    *,
    home: Path | None,
    receipts: Path | None,
    hidden: frozenset[str] = frozenset(),
) -> Speak:
    """Run the command at most once for each message; it survives a crash of the gateway.

    It inherits the gateway's environment, without the gateway's own secrets and those in `hidden`. With a
    run_timeout_s it is started again only after it has handed over a checkpoint, which asks for that.
    """
    return CommandAgent(name, settings, home=home, receipts=receipts, hidden=hidden).speak


class CommandAgent:
    """One agent of the settings that is a command."""

    def __init__(
        self,
        name: str,
        settings: AgentSettings,
        *,
        home: Path | None,
        receipts: Path | None,
        hidden: frozenset[str],
    ) -> None:
        self._name = name
        self._settings = settings
        self._receipts = None if receipts is None else str(receipts)
        self._hidden = hidden
        self._passed = {variable: _secret(name, ours) for variable, ours in sorted(settings.env.items())}
        self._directory = settings.directory
        if settings.directory is not None and home is not None:
            self._directory = str(in_home(home, settings.directory, key=f"agents.{name}.directory"))
        self._checks = checks_of(settings)
        # Never the directory where the gateway was started: its files are not trusted.
        self._otherwise = None if home is None else str(home)

    async def speak(self, run: Run, heard: AgentInput) -> str | None:
        cycle = Cycle()
        while True:
            turn = await self._turn(run, heard, cycle)
            if self._settings.run_timeout_s is None:
                return self._answer_of(turn)
            answer, marked = split_output(turn.stdout)
            # Of a command that ended by itself, the last line it printed is its last word.
            is_own_end = turn.exit_code == 0 and not turn.has_timed_out
            found = find_checkpoint(marked=marked[-1:] if is_own_end else marked, files=(), ids=_ids_of(run))
            if found.document is None or not is_own_end:
                found = find_checkpoint(
                    marked=marked, files=(turn.checkpoint_before, turn.checkpoint), ids=_ids_of(run)
                )
            if found.problems:
                await tell_refused(run, self._name, found.problems)
            document = found.document
            if (
                document is not None
                and document.status in ("running", "waiting")
                and is_own_end
                and not (turn.was_warned or marked)
                and answer.strip()
            ):
                # It wrote the file on its way, and then came to its answer: it asks for nothing more.
                document = msgspec.structs.replace(document, status="done")
            if document is None and found.problems and is_own_end:
                why = "it handed over a checkpoint that cannot be believed, and no other"
                raise AgentFailed(f"agent {self._name}: {why}: {found.problems[-1]}")
            if document is None or document.status == "done":
                ended = msgspec.structs.replace(turn, stdout=answer)
                if document is not None and turn.has_timed_out:
                    # A command that is done and was only too slow to end has done its work.
                    ended = msgspec.structs.replace(ended, exit_code=0, has_timed_out=False)
                said = self._answer_of(ended)
                if not (unmet := await self._unmet(run)):
                    return said
                cycle = await self._go_on(run, heard, cycle, document, turn, unmet)
                continue
            if document.status == "failed":
                raise AgentFailed(f"agent {self._name} says that it failed: {_last_error(document)}")
            if document.status == "blocked":
                asked = f"agent {self._name} is blocked: {_last_error(document)}. What should it do?"
                cycle = Cycle(document=document, answer=str(await run.ask(asked)))
                continue
            cycle = await self._go_on(run, heard, cycle, document, turn)

    async def _unmet(self, run: Run) -> dict[str, str]:
        """The done criteria that do not hold, now that the command says that it is done."""
        if not self._checks:
            return {}
        hidden = self._hidden | run._live.place.secrets.variables  # noqa: SLF001 - not handed on
        return await unmet_criteria(
            run, self._checks, directory=self._directory or self._otherwise, hidden=hidden
        )

    async def _go_on(
        self,
        run: Run,
        heard: AgentInput,
        cycle: Cycle,
        document: TaskDocument | None,
        turn: AgentTurn,
        unmet: Mapping[str, str] | None = None,
    ) -> Cycle:
        """Hand over the document, and return in the run that the wake started. Raises AgentFailed if the
        command is not to be woken."""
        missing = {} if unmet is None else unmet
        if self._smart_wake(run, heard) is SmartWake.NEVER:
            why = "handed over a checkpoint at its run_timeout_s, and smart_wake is never"
            if missing:
                shown = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
                why = f"says that it is done, and this does not hold: {shown}"
            raise AgentFailed(f"agent {self._name} {why}")
        if document is None or missing:
            document = undone(document, run, missing, run._live.clock.now())  # noqa: SLF001 - its clock
        handed = HandedDocument(
            document=document,
            before=cycle.document,
            directory=Path(self._directory or self._otherwise or "."),
            is_timeout=not missing and (turn.was_warned or turn.has_timed_out or turn.was_interrupted),
            criteria=self._criteria(heard),
            unmet=tuple(missing),
            deadline=self._deadline(run),
        )
        await hand_over(run, handed)
        return Cycle(document=document)

    async def _turn(self, run: Run, heard: AgentInput, cycle: Cycle) -> AgentTurn:
        message, settings = heard.message, self._settings
        env: dict[str, str | Secret | None] = {
            **self._passed,
            "HOLDFAST_AGENT": self._name,
            "HOLDFAST_SESSION_KEY": message.session_key,
            "HOLDFAST_MESSAGE_ID": message.id,
            "HOLDFAST_CHANNEL": message.channel,
            "HOLDFAST_PEER": message.peer,
            "HOLDFAST_TASK_ID": run.task_id,
        }
        token = turn_input.set(self._input(run, heard, cycle))
        try:
            return await run.step(
                speak_once,
                settings.command,
                # As the settings say it: another gateway, which may go on, has another home.
                cwd=settings.directory,
                env=env,
                timeout_s=settings.timeout_s if settings.run_timeout_s is None else settings.run_timeout_s,
                receipts=None,
                stdin=message.text,
            )
        finally:
            turn_input.reset(token)

    def _input(self, run: Run, heard: AgentInput, cycle: Cycle) -> TurnInput:
        live = run._live  # noqa: SLF001 - what the run may not hand on
        packet = _packet_of(run, heard, cycle, self._criteria(heard))
        # Read for each message: a reload of the settings may have declared more secrets.
        declared = live.place.secrets.variables
        given = TurnInput(
            stdin=self._guide(run, heard) + stdin_of(self._settings, heard.message, run.resumed, packet),
            hidden=tuple(sorted(self._hidden | declared)),
            cwd=self._directory or self._otherwise,
            receipts=self._receipts,
        )
        limit_s = self._settings.run_timeout_s
        if limit_s is None:
            return given
        if heard.packet is not None and heard.packet.run_timeout_s is not None:
            limit_s = min(limit_s, heard.packet.run_timeout_s)
        deadline = self._deadline(run)
        if deadline is not None:
            limit_s = min(limit_s, (deadline - live.clock.now()).total_seconds())
        return msgspec.structs.replace(
            given,
            timeout_s=limit_s,
            may_hand_over=True,
            ids=_ids_of(run),
            warning=self._warning(run, limit_s, live.place.wakes.stop_before),
        )

    def _criteria(self, heard: AgentInput) -> tuple[str, ...]:
        """What must hold when it is done: by its settings, and by the packet that spawned its session."""
        packet = heard.packet
        return (*(one.name for one in self._checks), *([] if packet is None else packet.done_criteria))

    def _guide(self, run: Run, heard: AgentInput) -> str:
        """What a model needs to know to hand over its work."""
        if self._settings.stdin != "guided":
            return ""
        packet = heard.packet
        return _GUIDE.format(
            seconds=f"{self._settings.run_timeout_s:g}",
            task_id=run.task_id if packet is None else packet.task_id,
            mark=CHECKPOINT_MARK,
            variable=CHECKPOINT_VARIABLE,
        )

    def _warning(self, run: Run, limit_s: float, stop_before: float) -> CommandWarning | None:
        if self._settings.warn is None or limit_s <= 0:
            return None
        left_s = limit_s * stop_before
        line = msgspec.json.encode(StopWarning(seconds_left=round(left_s, 3), task_id=run.task_id)).decode()
        return CommandWarning(way=self._settings.warn, after_s=limit_s - left_s, line=line)

    def _deadline(self, run: Run) -> datetime | None:
        """When the time for the whole answer is over, waits included."""
        live = run._live  # noqa: SLF001 - the task's own start
        if self._settings.timeout_s is None:
            return None
        return (live.task.started_at or live.clock.now()) + timedelta(seconds=self._settings.timeout_s)

    def _smart_wake(self, run: Run, heard: AgentInput) -> SmartWake:
        if heard.packet is not None and heard.packet.smart_wake is not SmartWake.AUTO:
            return heard.packet.smart_wake
        return run._live.place.wakes.smart_wake  # noqa: SLF001 - the settings of its worker

    def _answer_of(self, result: ShellResult) -> str:
        name, limit = self._name, "timeout_s" if self._settings.run_timeout_s is None else "run_timeout_s"
        if result.has_timed_out:
            left = "" if limit == "timeout_s" else " without a checkpoint; what it did by then is not known"
            raise AgentFailed(
                f"the command of agent {name} took longer than its {limit} and was stopped{left}"
            )
        if result.exit_code != 0:
            said = result.stderr.strip()[-_SHOWN_CHARS:] or "it printed nothing on stderr"
            raise AgentFailed(f"the command of agent {name} ended with {result.exit_code}: {said}")
        return result.stdout


def _ids_of(run: Run) -> tuple[str, ...]:
    """The names of the task in the documents of its agent: its id, and its key."""
    key = run._live.task.dedup_key  # noqa: SLF001 - the task's own
    return (run.task_id,) if key is None else (run.task_id, key)


def _last_error(document: TaskDocument) -> str:
    said = document.errors[-1] if document.errors else f"at {document.current_step or 'an unnamed step'}"
    return clean_text(" ".join(said.split()), max_chars=_SHOWN_CHARS)


def _packet_of(run: Run, heard: AgentInput, cycle: Cycle, criteria: Sequence[str]) -> AgentPacket | None:
    document, resumed, spawned = cycle.document, run.resumed, heard.packet
    if document is None:
        return None
    known = None if resumed is None else resumed.packet
    return AgentPacket(
        task_id=run.task_id if spawned is None else spawned.task_id,
        resume=ResumeStep(current_step=document.current_step, next_actions=document.next_actions),
        done_criteria=list(criteria),
        objective=document.goal or run._live.task.goal,  # noqa: SLF001 - the task's own
        checkpoint="" if known is None else known.checkpoint,
        reason="answered" if cycle.answer is not None or known is None else known.reason,
        unmet=[] if known is None else known.unmet,
        document=document,
        artifacts=() if resumed is None else resumed.artifacts,
        answer=cycle.answer,
    )


def stdin_of(
    settings: AgentSettings,
    message: Envelope,
    resumed: SeedContext | None,
    packet: AgentPacket | None = None,
) -> str:
    """What the command reads: the text, after a resume preceded by what is known; or the JSON document, which
    is a line of its own if more lines may follow."""
    if settings.stdin == "json":
        document = CommandInput(message=message, resumed=resumed, packet=packet)
        end = "\n" if settings.warn == "stdin" else ""
        return f"{msgspec.json.encode(document).decode()}{end}"
    if packet is not None:
        said = (
            f"[System] Woken to go on ({packet.reason}). "
            "The next line has the resume packet; the message follows."
        )
        return f"{said}\n{_one_line(packet)}\n\n{message.text}"
    if resumed is None:
        return message.text
    # No message can hold a line that begins with [System], and the document is one line: so the command can
    # tell them apart.
    said = (
        f"[System] Resumed after an interruption ({resumed.reason.value}). "
        "The next line has what is known; the message follows."
    )
    return f"{said}\n{_one_line(resumed)}\n\n{message.text}"


def _one_line(known: msgspec.Struct) -> str:
    document = msgspec.json.encode(known).decode()
    for sign in _BREAKS:  # JSON does not escape these
        document = document.replace(sign, f"\\u{ord(sign):04x}")
    return document


def _secret(name: str, ours: str) -> Secret:
    """Only the name is stored with the step; the value is looked up when the command starts."""
    try:
        return secret(ours)
    except BadInput as error:
        raise SettingsError(
            f"agents.{name}.env: {ours} cannot be passed on; write the name of a variable in capitals"
        ) from error
