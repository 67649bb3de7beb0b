"""The report as a page for people, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.analysis.report import AnalysisReport

MAX_LANGUAGES = 15
MAX_ITEMS = 50
MAX_FAILURES = 100


def page_of(report: AnalysisReport) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: AnalysisReport) -> Iterator[str]:
    graph = report.dependencies
    yield f"# Analysis{f' {_cell(report.campaign)}' if report.campaign else ''}"
    yield ""
    yield (
        f"{report.analysed:,} of {report.items:,} items, {report.lines_of_code:,} lines of code, "
        f"{report.tests:,} tests in {report.items_with_tests:,} items, {graph.distinct:,} "
        f"{'dependency' if graph.distinct == 1 else 'dependencies'}, "
        f"{graph.between_items:,} of them between items."
    )
    yield from _heading("Recommendations")
    counts = [(name, f"{count:,}") for name, count in report.recommendations.items()]
    yield from _table(("recommendation", "items"), counts)
    yield from _heading("Languages")
    languages = [
        (name, f"{one.files:,}", f"{one.code:,}", f"{one.comment:,}", f"{one.blank:,}")
        for name, one in list(report.languages.items())[:MAX_LANGUAGES]
    ]
    yield from _table(("language", "files", "code", "comment", "blank"), languages)
    yield from _rest(len(report.languages), MAX_LANGUAGES, "languages")
    if graph.most_used:
        yield from _heading("Dependencies that most items need")
        used = [
            (f"{one.name} ({one.ecosystem})", f"{one.used_by:,}", one.item or "") for one in graph.most_used
        ]
        yield from _table(("dependency", "items", "is item"), used)
    if report.failures:
        yield from _heading("Failed")
        failures = [(one.item, one.error) for one in report.failures[:MAX_FAILURES]]
        yield from _table(("item", "error"), failures)
        yield from _rest(len(report.failures), MAX_FAILURES, "failures")
    yield from _heading("Items")
    largest = sorted(report.item_list, key=lambda one: (-one.lines_of_code, one.item))
    items = [
        (
            one.item,
            f"{one.lines_of_code:,}",
            f"{one.dependencies:,}",
            f"{one.dependents:,}",
            f"{one.tests:,}",
            (one.last_commit or "")[:10],
            one.merge_recommendation,
            one.reason or "",
        )
        for one in largest[:MAX_ITEMS]
    ]
    headers = ("item", "code", "needs", "needed by", "tests", "last commit", "recommendation", "because")
    yield from _table(headers, items)
    yield from _rest(len(largest), MAX_ITEMS, "items, all of them in analysis-report.json")


def _heading(text: str) -> Iterator[str]:
    yield ""
    yield f"## {text}"
    yield ""


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headers)} |"
    yield f"|{' --- |' * len(headers)}"
    for row in rows:
        yield f"| {' | '.join(map(_cell, row))} |"


def _rest(number: int, shown: int, what: str) -> Iterator[str]:
    if number > shown:
        yield ""
        yield f"The first {shown:,} of {number:,} {what}."


def _cell(text: str) -> str:
    """Text of others in a table: it may neither end the cell nor become markup."""
    for sign in "\\|<`[":
        text = text.replace(sign, f"\\{sign}" if sign != "<" else "&lt;")
    return text
