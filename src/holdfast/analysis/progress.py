"""How far an analysis is, phase by phase, for bars."""

from __future__ import annotations

import msgspec

from holdfast.engine.campaigns.report import CampaignProgress


class PhaseCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How far one phase of the campaign is."""

    name: str
    total: int
    done: int
    running: int
    failed: int


def phase_counts(progress: CampaignProgress) -> tuple[PhaseCounts, ...]:
    return tuple(
        PhaseCounts(
            name=phase.name,
            total=phase.counts.total,
            done=phase.counts.done,
            running=phase.counts.running,
            failed=phase.counts.failed,
        )
        for phase in progress.phases
    )
