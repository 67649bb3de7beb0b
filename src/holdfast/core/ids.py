"""Typed identifiers and how they are made."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime
from typing import NewType

from holdfast.core.clock import to_micros
from holdfast.core.errors import BadInput
from holdfast.core.patterns import compiled_late

TaskId = NewType("TaskId", str)
RunId = NewType("RunId", str)
CheckpointId = NewType("CheckpointId", str)
BootId = NewType("BootId", str)
FlowId = NewType("FlowId", str)
CampaignId = NewType("CampaignId", str)
SessionId = NewType("SessionId", str)
EffectId = NewType("EffectId", str)
DeliveryId = NewType("DeliveryId", str)
WakeId = NewType("WakeId", str)
MessageId = NewType("MessageId", str)
FiringId = NewType("FiringId", str)
QuestionId = NewType("QuestionId", str)
RestartId = NewType("RestartId", str)
AuditId = NewType("AuditId", str)
AlertId = NewType("AlertId", str)

# Crockford's alphabet: no letter looks like a digit, and text sorts as the numbers do.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
# Sorts after every id.
LAST = "~"
_SHAPE = compiled_late(r"[a-z0-9_-]{1,64}\Z")
_WHOLE = compiled_late(rf"[a-z]+_[{_ALPHABET}]{{26}}\Z")


def new_id(prefix: str, now: datetime) -> str:
    """An id that sorts by the time it was made: 48 bits of milliseconds, then 80 random ones."""
    return id_from(prefix, now, secrets.token_bytes(10))


def id_from(prefix: str, moment: datetime, chance: bytes) -> str:
    """The same from ten given bytes: the same bytes at the same time give the same id."""
    ms = to_micros(moment) // 1000
    high, low = int.from_bytes(chance[:5], "big"), int.from_bytes(chance[5:], "big")
    # Ten bits at a time, so that no number needs more than a machine word.
    return (
        f"{prefix}_{_PAIRS[ms >> 40]}{_PAIRS[ms >> 30 & 1023]}{_PAIRS[ms >> 20 & 1023]}"
        f"{_PAIRS[ms >> 10 & 1023]}{_PAIRS[ms & 1023]}"
        f"{_PAIRS[high >> 30]}{_PAIRS[high >> 20 & 1023]}{_PAIRS[high >> 10 & 1023]}{_PAIRS[high & 1023]}"
        f"{_PAIRS[low >> 30]}{_PAIRS[low >> 20 & 1023]}{_PAIRS[low >> 10 & 1023]}{_PAIRS[low & 1023]}"
    )


def id_bound(prefix: str, moment: datetime) -> str:
    """Ids that sort before this text were made earlier, to the millisecond."""
    # The time is the first ten characters of an id.
    return new_id(prefix, moment)[: len(prefix) + 11]


def new_task_id(now: datetime) -> TaskId:
    return TaskId(new_id("task", now))


def new_run_id(now: datetime) -> RunId:
    return RunId(new_id("run", now))


def new_checkpoint_id(now: datetime) -> CheckpointId:
    return CheckpointId(new_id("ckpt", now))


def new_flow_id(now: datetime) -> FlowId:
    return FlowId(new_id("flow", now))


def new_campaign_id(now: datetime) -> CampaignId:
    return CampaignId(new_id("camp", now))


def new_alert_id(now: datetime) -> AlertId:
    return AlertId(new_id("alert", now))


def derived_id(prefix: str, now: datetime, *parts: str) -> str:
    """An id that sorts by time like others, made of parts instead of random bits: a write that makes several
    ids gets the same ones when it runs again."""
    digest = hashlib.blake2b("\n".join(parts).encode(), digest_size=10).digest()
    number = int.from_bytes(digest, "big")
    return id_bound(prefix, now) + "".join(_ALPHABET[number >> shift & 31] for shift in range(75, -1, -5))


def new_boot_id(now: datetime) -> BootId:
    return BootId(new_id("boot", now))


def new_effect_id(micros: int, key: str) -> EffectId:
    """An id made of the time and the effect's key instead of random bits, so the same key gives the same id.

    Hexadecimal, because the key is hexadecimal already. The unit of time is 64 microseconds, because ids sort
    by time and a program may do several effects in a millisecond.
    """
    return EffectId(f"eff_{micros >> 6:013x}{key[:13]}")


def new_question_id(now: datetime) -> QuestionId:
    return QuestionId(new_id("ques", now))


def new_restart_id(now: datetime) -> RestartId:
    return RestartId(new_id("rst", now))


def new_audit_id(now: datetime, chance: bytes | None = None) -> AuditId:
    """An id that sorts by microseconds, because one caller may do several things in a millisecond. The same
    `chance` (six random bytes) at the same time gives the same id."""
    return AuditId(f"{audit_id_prefix(now)}{(chance or secrets.token_bytes(6)).hex()}")


def audit_id_prefix(now: datetime) -> str:
    """Ids that sort before this prefix were made earlier."""
    return f"aud_{to_micros(now):014x}"


def new_message_id(now: datetime) -> MessageId:
    return MessageId(new_id("msg", now))


def new_firing_id(now: datetime) -> FiringId:
    return FiringId(new_id("fire", now))


def new_wake_id(now: datetime) -> WakeId:
    return WakeId(new_id("wake", now))


def new_token() -> str:
    """A random token that a worker writes into the record it claims, to recognise its own claim later."""
    return secrets.token_hex(12)


def check_id(field: str, value: object) -> str:
    """The value, if it has the shape of an id. Raises BadInput otherwise: ids reach file names and SQL."""
    if not isinstance(value, str) or not _SHAPE().match(value):
        raise BadInput(field, "an id has 1 to 64 characters of a-z, 0-9, _ and -")
    return value


def is_whole_id(prefix: str, value: str) -> bool:
    """Whether it has the shape of a whole id that Holdfast made, not only of a prefix."""
    return value.startswith(f"{prefix}_") and _WHOLE().match(value) is not None
