"""CampaignCheckpoint: a campaign saved as a whole; its kind, its id, and which items were done; pure."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal

import msgspec

from holdfast.core.errors import BadInput
from holdfast.core.ids import CampaignId
from holdfast.core.payload import digest_of
from holdfast.core.redaction import redact_name

ID_PREFIX = "checkpoint-"
# An id has at most 64 characters; the longest ending is `-20260228-160000-0123456789`.
_MAX_NAME_IN_ID = 26
_UNFIT = re.compile(r"[^a-z0-9_-]+")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,25}\Z")
# A phase may have ten million places; a stored record that claims more is damaged.
_MAX_PLACES_BYTES = 2 * 1024 * 1024
# Of the automatic kinds, how many of one campaign are kept.
KEPT = 50

Decision = Literal["refuse", "keep", "compensate", "acknowledge"]


class CampaignCheckpointKind(StrEnum):
    """When it was saved: after items or a batch, at a milestone, or after some time."""

    BATCH = "batch"
    MILESTONE = "milestone"
    PERIODIC = "periodic"


class CampaignCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign as it was at one moment. `restore` goes back to one that is recoverable."""

    # `checkpoint-<name>-<time>`; also the name of a folder.
    id: str
    campaign_id: CampaignId
    # Counts up by one in each campaign.
    number: int
    kind: CampaignCheckpointKind
    name: str
    # The phase and the batch that it is about, if it is about one.
    phase: int | None = None
    batch: int | None = None
    # How many items the campaign had then.
    items: int
    recoverable: bool
    # A small redacted JSON document: the counts of each phase and what was done since the one before.
    summary: bytes
    created_at: datetime
    is_damaged: bool = False


class CampaignMarks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the checkpoints of a campaign have covered so far; from it follows which one is due."""

    # By phase: total, running, paused, done and failed, at the last checkpoint of any kind.
    counts: tuple[tuple[int, int, int, int, int], ...] = ()
    # How many item-phases were done when items were last counted off.
    done: int = 0
    # By the number of a phase that is over: how many items it had, and how many of them had failed.
    over: dict[int, tuple[int, int]] = {}
    # Complete batches of the last minutes: phase, number, and how many items it had.
    batches: tuple[tuple[int, int, int], ...] = ()
    # In microseconds: of which end of the campaign there is a milestone.
    ended_us: int | None = None


class CampaignSave(msgspec.Struct, frozen=True, kw_only=True):
    """The last checkpoint of a campaign and its marks; `wanted` says why another one is needed now."""

    campaign_id: CampaignId
    number: int = 0
    checkpoint_id: str | None = None
    marks: CampaignMarks = CampaignMarks()
    wanted: str | None = None
    updated_at: datetime


class CampaignRestore(msgspec.Struct, frozen=True, kw_only=True):
    """A restore of a campaign: how far it has come, and what becomes of the effects since."""

    campaign_id: CampaignId
    number: int
    checkpoint_id: str
    effects: Decision
    # Whether the campaign runs again at its end.
    goes_on: bool
    # It has dealt with every place of earlier phases, and with those up to this one.
    phase: int = 0
    place: int = -1
    undone: int = 0
    started_at: datetime
    updated_at: datetime
    ended_at: datetime | None = None


def checkpoint_id(kind: CampaignCheckpointKind, name: str, at: datetime, *, tail: str = "") -> str:
    """Its id: `checkpoint-batch-008-20260228-1400`, `checkpoint-analysis-complete-20260228-160000`.

    Batches are named with the minute. If the id is taken, `tail` makes another one.
    """
    form = "%Y%m%d-%H%M" if kind is CampaignCheckpointKind.BATCH else "%Y%m%d-%H%M%S"
    # Names of phases fit; a name from elsewhere, such as that of a rule, is made to.
    short = _UNFIT.sub("-", name.lower())[:_MAX_NAME_IN_ID].strip("-_") or kind.value
    return f"{ID_PREFIX}{short}-{at.astimezone(UTC).strftime(form)}{'-' if tail else ''}{tail}"


def tail_of(campaign_id: str, number: int) -> str:
    """The end of an id whose usual form is taken, by another campaign or in the same minute."""
    return digest_of(campaign_id, number).hex()[:10]


def check_milestone_name(name: object) -> str:
    """The name of a milestone; it becomes a part of an id, and of the name of a folder. Raises BadInput."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise BadInput(
            "milestone", "1 to 26 small letters, digits, dashes and underscores, such as p0-migrated"
        )
    if redact_name(name) != name:
        raise BadInput("milestone", "it looks like a secret; name it otherwise")
    return name


# --- places


def pack_places(places: Iterable[int], items: int) -> bytes:
    """The record of the places that are done: one bit for each place, compressed."""
    bits = bytearray((items + 7) // 8)
    for place in places:
        bits[place >> 3] |= 1 << (place & 7)
    return zlib.compress(bits, 6)


class Places:
    """Which places were done. Those that were added later were not."""

    def __init__(self, packed: bytes) -> None:
        """Raises ValueError if the record cannot be read."""
        reader = zlib.decompressobj()
        try:
            self._bits = reader.decompress(packed, _MAX_PLACES_BYTES)
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if not reader.eof:
            raise ValueError("it is cut off, or too long")

    def __contains__(self, place: int) -> bool:
        at = place >> 3
        return at < len(self._bits) and bool(self._bits[at] & (1 << (place & 7)))

    def __iter__(self) -> Iterator[int]:
        for at, bits in enumerate(self._bits):
            for bit in range(8) if bits else ():
                if bits & (1 << bit):
                    yield at * 8 + bit

    def __len__(self) -> int:
        return int.from_bytes(self._bits, "little").bit_count()
