"""The report of all analyses: totals by language, dependencies, recommendations, failures."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from holdfast.analysis.documents import ANALYSIS_ENDING, Analysis, AnalysisSummary
from holdfast.analysis.files import locked, write_atomically
from holdfast.analysis.languages import LineCounts
from holdfast.analysis.manifests import Dependency
from holdfast.analysis.recommendation import Recommendation
from holdfast.analysis.report_page import page_of
from holdfast.analysis.steps import decode_analysis, place_of
from holdfast.analysis.trees import read_regular
from holdfast.core.campaign import Item
from holdfast.core.errors import BadInput
from holdfast.views.text import one_line

JSON_NAME = "analysis-report.json"
PAGE_NAME = "analysis-report.md"
_LOCK_NAME = ".analysis-report.lock"
MAX_ANALYSIS_BYTES = 8 * 1024 * 1024
MOST_USED = 20


class CheckedAnalysis(AnalysisSummary, frozen=True, kw_only=True):
    """The summary of an analysis whose file was read back and found whole."""


class UpdatedReport(msgspec.Struct, frozen=True, kw_only=True):
    """The files of the report, and whether this call wrote them."""

    is_new: bool
    paths: tuple[str, str]


class ReportedItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item of the report."""

    item: str
    name: str
    kind: str
    lines_of_code: int
    dependencies: int
    # How many other items of the report need it.
    dependents: int
    tests: int
    test_coverage: float | None
    last_commit: str | None
    merge_recommendation: str
    reason: str | None


class ReportedFailure(msgspec.Struct, frozen=True, kw_only=True):
    """An item that could not be analysed, and why."""

    item: str
    error: str


class UsedDependency(msgspec.Struct, frozen=True, kw_only=True):
    """A dependency, and how many items need it."""

    ecosystem: str
    name: str
    used_by: int
    # The item of the report that it is, if it is one.
    item: str | None


class DependencyGraph(msgspec.Struct, frozen=True, kw_only=True):
    """How the items depend on others and on each other."""

    declared: int
    distinct: int
    between_items: int
    most_used: list[UsedDependency]


class AnalysisReport(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `analysis-report.json`."""

    campaign: str
    items: int
    analysed: int
    failed: int
    lines: LineCounts
    lines_of_code: int
    languages: dict[str, LineCounts]
    dependencies: DependencyGraph
    tests: int
    items_with_tests: int
    recommendations: dict[str, int]
    failures: list[ReportedFailure]
    item_list: list[ReportedItem]


def check_analysis(item: Item) -> CheckedAnalysis:
    """Read the file of the item's analysis back. Raises BadInput if it is missing, damaged or another's."""
    path = place_of(item, "folder").analysis
    again = f"repeat it: holdfast campaign retry {item.campaign} --phase analysis"
    try:
        content = read_regular(os.fsencode(path), MAX_ANALYSIS_BYTES)
    except OSError as error:
        raise BadInput("analysis", f"{path.name} cannot be read: {error.strerror}; {again}") from error
    analysis = decode_analysis(content or b"")
    if analysis.summary is None or (analysis.item, analysis.campaign) != (item.id, item.campaign):
        raise BadInput("analysis", f"{path.name} is of another item or campaign, or has no result; {again}")
    return CheckedAnalysis(**msgspec.structs.asdict(analysis.summary))


def update_report(analysis: str) -> UpdatedReport:
    """See to it that the report has this analysis: write it anew from all files, unless it is newer.

    Safe to repeat, and from several processes at once.
    """
    path = Path(analysis)
    folder = path.parent
    paths = (str(folder / JSON_NAME), str(folder / PAGE_NAME))
    with locked(folder / _LOCK_NAME) as began_ns:
        if _is_newer(folder / PAGE_NAME, path) and _is_newer(folder / JSON_NAME, path):
            return UpdatedReport(is_new=False, paths=paths)
        written = report_of(analyses_in(folder))
        document = msgspec.json.format(msgspec.json.encode(written), indent=2) + b"\n"
        # They have the time before the first file was read, so that a file that came later is newer.
        write_atomically(folder / JSON_NAME, document, modified_ns=began_ns)
        write_atomically(folder / PAGE_NAME, page_of(written).encode(), modified_ns=began_ns)
    return UpdatedReport(is_new=True, paths=paths)


def _is_newer(report: Path, analysis: Path) -> bool:
    try:
        return report.stat().st_mtime_ns > analysis.stat().st_mtime_ns
    except FileNotFoundError:
        return False


def analyses_in(folder: Path) -> Iterator[Analysis]:
    """Every analysis in a folder, by name; a file that is damaged counts as a failure."""
    for path in sorted(folder.glob(f"*{ANALYSIS_ENDING}")):
        try:
            yield decode_analysis(read_regular(os.fsencode(path), MAX_ANALYSIS_BYTES) or b"")
        except (OSError, BadInput) as error:
            item = path.name.removesuffix(ANALYSIS_ENDING)
            yield Analysis(item=item, name=item, campaign="", kind="folder", error=one_line(str(error)))


def report_of(analyses: Iterable[Analysis]) -> AnalysisReport:
    """Put analyses together. Pure."""
    found = list(analyses)
    done = [one for one in found if one.summary is not None]
    languages: dict[str, LineCounts] = {}
    lines = LineCounts()
    for one in done:
        for name, counts in one.languages.items():
            languages.setdefault(name, LineCounts()).add(counts)
            lines.add(counts)
    graph, dependents = _graph(done)
    summaries = [one.summary for one in done if one.summary is not None]
    recommended = Counter(one.merge_recommendation for one in summaries)
    return AnalysisReport(
        campaign=next((one.campaign for one in found if one.campaign), ""),
        items=len(found),
        analysed=len(done),
        failed=len(found) - len(done),
        lines=lines,
        lines_of_code=sum(one.lines_of_code for one in summaries),
        languages=dict(sorted(languages.items(), key=lambda pair: (-pair[1].code, pair[0]))),
        dependencies=graph,
        tests=sum(one.tests for one in summaries),
        items_with_tests=sum(1 for one in summaries if one.tests),
        recommendations={one.value: recommended[one.value] for one in Recommendation},
        failures=[
            ReportedFailure(item=one.item, error=one.error or "") for one in found if one.summary is None
        ],
        item_list=[
            _reported(one, one.summary, dependents[one.item]) for one in done if one.summary is not None
        ],
    )


def _reported(one: Analysis, summary: AnalysisSummary, dependents: int) -> ReportedItem:
    return ReportedItem(
        item=one.item,
        name=one.name,
        kind=one.kind,
        lines_of_code=summary.lines_of_code,
        dependencies=summary.dependencies,
        dependents=dependents,
        tests=summary.tests,
        test_coverage=summary.test_coverage,
        last_commit=summary.last_commit,
        merge_recommendation=summary.merge_recommendation,
        reason=one.reason,
    )


def _graph(done: Sequence[Analysis]) -> tuple[DependencyGraph, Counter[str]]:
    """Dependencies of all kinds, each counted once for an item that needs it."""
    provider: dict[tuple[str, str], str] = {}
    users: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for one in done:
        facts = one.dependencies
        if facts is None:
            continue
        for provided in facts.provides:
            provider.setdefault(_key(provided), one.item)
        for needed in facts.needs:
            users[_key(needed)].add(one.item)
    dependents: Counter[str] = Counter()
    for key, items in users.items():
        if key in provider:
            dependents[provider[key]] += len(items - {provider[key]})
    most = sorted(users.items(), key=lambda pair: (-len(pair[1]), pair[0]))[:MOST_USED]
    graph = DependencyGraph(
        declared=sum(len(items) for items in users.values()),
        distinct=len(users),
        between_items=dependents.total(),
        most_used=[
            UsedDependency(ecosystem=key[0], name=key[1], used_by=len(items), item=provider.get(key))
            for key, items in most
        ],
    )
    return graph, dependents


def _key(one: Dependency) -> tuple[str, str]:
    return one.ecosystem, one.name
