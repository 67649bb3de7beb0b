"""SpawnPacket: the work that one session gives to another, in the words of the contract for long tasks."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.errors import BadInput
from holdfast.core.payload import check_line, check_words
from holdfast.core.smart_wake import SmartWake
from holdfast.core.wake_contract import LATEST, MAX_ACTIONS, WAKE_MODE, ResumeStep

MAX_TASK_BYTES = 64 * 1024
MAX_ACTION_BYTES = 2000
MAX_RUN_TIMEOUT_S = 31 * 86_400.0
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# What each wake mode means for the child's runs.
WAKE_MODES = {WAKE_MODE: SmartWake.ALWAYS, "auto": SmartWake.AUTO, "never": SmartWake.NEVER}


class SpawnPacket(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={"wake_mode": "wakeMode", "run_timeout_s": "runTimeoutS"},
):
    """What the child is to do, where it begins, and when it is done."""

    task: str
    # `smartwake_<slug>_<timestamp>`: the key of the child's task.
    task_id: str
    wake_mode: str = msgspec.field(default=WAKE_MODE)
    resume: ResumeStep = ResumeStep()
    done_criteria: list[str] = []
    # The time limit of each run of the child; never longer than its agent's own.
    run_timeout_s: float | None = None

    @property
    def smart_wake(self) -> SmartWake:
        return WAKE_MODES[self.wake_mode]

    @property
    def text(self) -> str:
        """What the child's agent reads: the task in words, and the packet as one line of JSON."""
        shown = {"wakeMode": self.wake_mode, **msgspec.to_builtins(self)}
        return f"{self.task}\n\n{msgspec.json.encode(shown).decode()}"


def packet_in(text: str) -> SpawnPacket | None:
    """The packet of a child's first message."""
    try:
        return msgspec.json.decode(text.rpartition("\n")[2], type=SpawnPacket)
    except (msgspec.DecodeError, ValueError):
        return None


def packet_from(fields: object) -> SpawnPacket:
    """The packet in these fields, each of the right type. Raises BadInput."""
    try:
        return msgspec.convert(fields, SpawnPacket)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadInput("packet", str(error)) from error


def check_packet(packet: SpawnPacket) -> SpawnPacket:
    """Raises BadInput with the field and the fix."""
    # One line each: the last line of the message is the packet.
    facts: dict[str, Any] = {"task": check_words("task", packet.task, max_bytes=MAX_TASK_BYTES)}
    if not _ID.fullmatch(packet.task_id):
        raise BadInput(
            "task_id",
            "letters, digits, dots, dashes and underscores, at most 100: smartwake_<slug>_<timestamp>",
        )
    if packet.wake_mode not in WAKE_MODES:
        raise BadInput("wakeMode", f"one of {', '.join(WAKE_MODES)} is needed, not {packet.wake_mode[:50]!r}")
    if packet.resume.from_ != LATEST:
        raise BadInput("resume.from", f"only {LATEST} can be resumed, not {packet.resume.from_[:50]!r}")
    if packet.resume.current_step is not None:
        check_line("resume.current_step", packet.resume.current_step)
    _check_list("resume.next_actions", packet.resume.next_actions)
    _check_list("done_criteria", packet.done_criteria)
    limit = packet.run_timeout_s
    if limit is not None and not 0 < limit <= MAX_RUN_TIMEOUT_S:
        raise BadInput("runTimeoutS", "more than 0 seconds and at most 31 days are needed")
    return msgspec.structs.replace(packet, **facts)


def _check_list(field: str, values: list[str]) -> None:
    if len(values) > MAX_ACTIONS:
        raise BadInput(field, f"at most {MAX_ACTIONS} entries, not {len(values)}")
    for one in values:
        check_words(field, one, max_bytes=MAX_ACTION_BYTES)


def new_packet_id(task: str, at: datetime) -> str:
    """`smartwake_<slug>_<timestamp>` for a packet that names no task_id."""
    slug = re.sub(r"[^a-z0-9]+", "_", task.lower()).strip("_")[:40].strip("_") or "task"
    return f"smartwake_{slug}_{at:%Y%m%dT%H%M%SZ}"
