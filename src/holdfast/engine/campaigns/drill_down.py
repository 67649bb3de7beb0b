"""Details of one phase of a campaign: counts by groups, a page at a time, and a random sample of items."""

from __future__ import annotations

import random

from holdfast.core.campaign import Campaign, batch_name
from holdfast.core.errors import BadInput
from holdfast.core.ids import new_token
from holdfast.core.progress import CountKind, ItemCounts, total_of
from holdfast.core.transitions import ItemStatus
from holdfast.engine.campaigns.report import batches_of, counts_by, phase_counts
from holdfast.store import Tx
from holdfast.store.campaign_pages import ItemFilter, ListedItem

_KINDS = {"batch": CountKind.BATCH, "priority": CountKind.PRIORITY, "category": CountKind.CATEGORY}
_SEEDS = 2**32


def kind_named(by: str) -> CountKind:
    """Raises BadInput."""
    try:
        return _KINDS[by]
    except (KeyError, TypeError):
        raise BadInput("by", f"{by!a:.40} is none; use {', '.join(_KINDS)}") from None


def groups_of(
    tx: Tx, campaign: Campaign, phase: int, by: CountKind, *, token: str | None, limit: int
) -> tuple[list[tuple[str, ItemCounts]], str | None]:
    """A page of groups with their counts, in the order of their names, and the token of the next page. Read
    from the kept counts. Raises BadInput for a token of another list."""
    if by is CountKind.BATCH:
        return _batches(tx, campaign, phase, token=token, limit=limit)
    # The token is a name after a sign, because the name may be empty.
    if token is not None and not (token.startswith("=") and token.isprintable()):
        raise _bad_token(token)
    after = None if token is None else token.removeprefix("=")
    found = list(counts_by(tx, campaign, phase, by, after=after, limit=limit + 1).items())
    shown = found[:limit]
    return shown, f"={shown[-1][0]}" if len(found) > len(shown) else None


def _batches(
    tx: Tx, campaign: Campaign, phase: int, *, token: str | None, limit: int
) -> tuple[list[tuple[str, ItemCounts]], str | None]:
    after = "0" if token is None else token
    if not (after.isascii() and after.isdecimal() and len(after) <= 9):
        raise _bad_token(after)
    found = batches_of(tx, campaign, phase, after=int(after), limit=limit + 1)
    shown = found[:limit]
    groups = [(batch_name(one.number), one.counts) for one in shown]
    return groups, str(shown[-1].number) if len(found) > len(shown) else None


def _bad_token(token: str) -> BadInput:
    why = f"{token!r:.80} is not a page token of this list; copy the one of the previous page"
    return BadInput("page token", why)


# --- samples


def new_seed() -> int:
    return int(new_token(), 16) % _SEEDS


def sample_of(
    tx: Tx, campaign: Campaign, phase: int, status: ItemStatus | None, *, size: int, seed: int
) -> tuple[list[ListedItem], int]:
    """Items of one phase, each as likely as any other, in their order; and how many there are to draw from.

    The same seed gives the same sample while no item changes. One read for each item of the sample.
    """
    chance = random.Random(seed)  # noqa: S311 - a sample is no secret
    if status is None:
        total = campaign.items
        found = _at_places(tx, campaign, phase, _chosen(chance, total, size))
    else:
        total = _number_in(total_of(list(phase_counts(tx, campaign, phase).values())), status)
        found = _at_ranks(tx, campaign, phase, status, _chosen(chance, total, size))
    return found, total


def _chosen(chance: random.Random, total: int, size: int) -> list[int]:
    return sorted(chance.sample(range(total), min(size, total)))


def _at_places(tx: Tx, campaign: Campaign, phase: int, places: list[int]) -> list[ListedItem]:
    """Items have the places from 0 on, without a gap."""
    found: list[ListedItem] = []
    for place in places:
        found += tx.campaign_pages.items(campaign.id, phase, ItemFilter(), after=place - 1, limit=1)
    return found


def _at_ranks(
    tx: Tx, campaign: Campaign, phase: int, status: ItemStatus, ranks: list[int]
) -> list[ListedItem]:
    found: list[ListedItem] = []
    after, before = -1, -1
    for rank in ranks:
        one = tx.campaign_pages.at_rank(campaign.id, phase, status, after=after, skipped=rank - before - 1)
        if one is None:  # the counts are ahead of the rows
            break
        found.append(one)
        after, before = one.at.place, rank
    return found


def _number_in(counts: ItemCounts, status: ItemStatus) -> int:
    return {
        ItemStatus.PENDING: counts.pending,
        ItemStatus.RUNNING: counts.running,
        ItemStatus.PAUSED: counts.paused,
        ItemStatus.DONE: counts.done,
        ItemStatus.FAILED: counts.failed,
    }[status]
