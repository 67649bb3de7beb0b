"""The screen of `holdfast progress` keeps what matters most, however low the terminal is."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.cli.progress_lines import draw, signs_for
from holdfast.cli.tables import width_of
from holdfast.core.campaign import Campaign, CampaignSpec, Phase
from holdfast.core.ids import CampaignId
from holdfast.core.progress import ItemCounts, Rate, total_of
from holdfast.core.transitions import CampaignStatus
from holdfast.engine.campaigns.report import BatchProgress, CampaignProgress, PhaseProgress
from holdfast.views.progress import CampaignProgressView
from tests.builders import START

NAMES = ("analysis", "migration", "validation")
ISSUES = [
    "2 items failed: holdfast campaign retry rd-os",
    "no process carries its 2 running items since 2026-03-01 08:00:00 UTC: holdfast worker MODULE",
]


def a_view(*names: str, issues: list[str]) -> CampaignProgressView:
    """Five priorities in each phase; every phase has begun and none is over."""
    phases = []
    for number, name in enumerate(names):
        by_priority = {f"P{one}": ItemCounts(total=100, done=60 - number, running=1) for one in range(5)}
        batch = BatchProgress(number=number + 1, counts=by_priority["P0"], priority="P0")
        phases.append(
            PhaseProgress(
                number=number,
                name=name,
                counts=total_of(list(by_priority.values())),
                by_priority=by_priority,
                by_category={},
                rate=Rate(per_hour=300, left=40, eta=START + timedelta(hours=1)),
                current=batch,
                following=batch,
            )
        )
    campaign = Campaign(
        id=CampaignId("camp_1"),
        name="rd-os",
        owner="system",
        spec=CampaignSpec(phases=tuple(Phase(name=name, task="t") for name in names)),
        created_at=START,
        updated_at=START,
        started_at=START,
        status=CampaignStatus.RUNNING,
        items=500,
        batches=50,
    )
    progress = CampaignProgress(campaign=campaign, phases=tuple(phases))
    return CampaignProgressView.of(progress, at=START + timedelta(hours=1), issues=issues)


def screen(view: CampaignProgressView, *, width: int = 80, height: int | None = None) -> list[str]:
    lines = draw(view, width=width, height=height, signs=signs_for("utf-8"))
    return ["".join(text for text, _ in line).rstrip() for line in lines]


def test_what_needs_attention_stands_below_the_title_and_above_the_bars() -> None:
    lines = screen(a_view(*NAMES, issues=ISSUES))

    assert lines[0].startswith("rd-os  running for 1h")
    assert lines[2] == "needs attention"
    assert lines[3] == f"  ! {ISSUES[0]}"
    assert lines[7].split()[0] == "overall"
    assert lines[7].endswith("885 of 1,500 · 15 running")


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40), (80, 12), (60, 16)])
def test_the_screen_is_no_higher_than_the_terminal_and_keeps_every_issue_and_phase(
    columns: int, rows: int
) -> None:
    lines = screen(a_view(*NAMES, issues=ISSUES), width=columns, height=rows)

    said = " ".join(" ".join(lines).split())
    assert len(lines) <= rows
    assert max(map(width_of, lines)) <= columns
    assert all(issue.replace("  ", " ") in said.replace("! ", "") for issue in ISSUES)
    assert {line.split()[0] for line in lines if line and "█" in line} >= {"overall", *NAMES}


def test_a_low_terminal_shows_the_priorities_of_the_current_phase_only() -> None:
    view = a_view(*NAMES, issues=ISSUES)

    high, low = screen(view, height=40), screen(view, height=24)

    assert sum(line.startswith("  P4 ") for line in high) == 3
    assert sum(line.startswith("  P4 ") for line in low) == 1
    assert [line.split()[0] for line in low[8:14]] == ["analysis", "P0", "P1", "P2", "P3", "P4"]
    assert sum("300 an hour" in line for line in low) == 1


def test_a_screen_that_cannot_show_everything_says_so() -> None:
    lines = screen(a_view(*(f"phase-{number}" for number in range(20)), issues=ISSUES), height=12)

    assert len(lines) == 12
    assert lines[3] == f"  ! {ISSUES[0]}"
    assert lines[-1] == "… the terminal is too low for the rest"


def test_one_phase_has_no_bar_for_all_together() -> None:
    assert not any(line.startswith("overall") for line in screen(a_view("analysis", issues=[])))
