"""The tasks of the two phases: `analyse` looks at one item, `report` puts all analyses together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from holdfast.analysis.documents import AnalysisSummary
from holdfast.analysis.report import CheckedAnalysis, UpdatedReport, check_analysis, update_report
from holdfast.analysis.steps import (
    assembled,
    count_part,
    find_dependencies,
    find_last_change,
    find_tests,
    survey,
    write_analysis,
)
from holdfast.core.campaign import CampaignSpec, Item
from holdfast.engine.client.campaigns import phase
from holdfast.engine.program.author_api import Run
from holdfast.engine.program.definitions import TaskDefinition, task

ANALYSE = "analyse_item"
REPORT = "report_item"
# One step of each name, and as many of COUNTED as the item has parts.
COUNTED = "count_part"
ANALYSIS_STEPS = ("survey", COUNTED, "find_dependencies", "find_tests", "find_last_change", "write_analysis")
REPORT_STEPS = ("check_analysis", "update_report")
# Items that are analysed at once in one process: they share its processor, and mostly read files.
CONCURRENCY = 16

Step: TypeAlias = Callable[..., Any]
# Gets the run and the function of a step, and returns the function to call instead.
StepWatch: TypeAlias = Callable[[Run, Step], Step]


def _unwatched(_run: Run, fn: Step) -> Step:
    return fn


def analysis_tasks(
    watch: StepWatch = _unwatched,
) -> tuple[TaskDefinition[..., Any], TaskDefinition[..., Any]]:
    """The tasks of both phases. `watch` may wrap the function of each step, as the demo does."""

    @task(name=ANALYSE)
    async def analyse(run: Run, item: Item) -> AnalysisSummary:
        """Analyse one item in several steps, and write what they found into a file."""
        found = await run.step(watch(run, survey), item)
        total = found.parts + 4
        parts = []
        for number in range(found.parts):
            await run.progress(done=number, total=total, subtask="lines")
            parts.append(await run.step(watch(run, count_part), found.place, number, found.parts))
        await run.progress(done=found.parts, total=total, subtask="dependencies")
        dependencies = await run.step(watch(run, find_dependencies), found.place)
        await run.progress(done=found.parts + 1, total=total, subtask="tests")
        tests = await run.step(watch(run, find_tests), found.place)
        await run.progress(done=found.parts + 2, total=total, subtask="last change")
        change = await run.step(watch(run, find_last_change), found.place, found.newest_s)
        await run.progress(done=found.parts + 3, total=total, subtask="file")
        analysis = assembled(found, parts, dependencies, tests, change)
        path = found.place.analysis
        await run.step(watch(run, write_analysis), str(path), analysis.encode())
        await run.artifact(path, name=path.name)
        assert analysis.summary is not None
        return analysis.summary

    @task(name=REPORT)
    async def report(run: Run, item: Item) -> CheckedAnalysis:
        """Check the file of one item's analysis, and see to it that the report has it."""
        checked: CheckedAnalysis = await run.step(watch(run, check_analysis), item)
        updated: UpdatedReport = await run.step(watch(run, update_report), checked.output_path)
        if updated.is_new:
            for path in updated.paths:
                await run.artifact(path, name=Path(path).name)
        return checked

    return analyse, report


analyse, report = analysis_tasks()


def analysis_spec(
    *,
    tasks: Sequence[TaskDefinition[..., Any]] = (analyse, report),
    concurrency: int = CONCURRENCY,
    **more: Any,
) -> CampaignSpec:
    """The campaign: every item is analysed, then all are reported on."""
    first, second = tasks
    return msgspec.structs.replace(
        CampaignSpec(
            phases=(
                phase("analysis", first, role="analyzer"),
                phase("report", second, role="reporter", waits_for_all=True),
            ),
            goal="lines, dependencies, tests and last change of each item, and a recommendation",
            concurrency=concurrency,
        ),
        **more,
    )
