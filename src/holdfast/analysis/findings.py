"""What an analysis found, in a few lines for people: read from its report."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.analysis.languages import is_code
from holdfast.analysis.report import JSON_NAME, AnalysisReport, report_of

MOST_LANGUAGES = 5


class AnalysisFindings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The largest languages by lines of code, and how many items got which recommendation."""

    lines_of_code: int
    dependencies: int
    tests: int
    languages: dict[str, int]
    recommendations: dict[str, int]

    def fields(self) -> list[tuple[str, str | None]]:
        """Names and values, to print."""
        languages = ", ".join(f"{name} {lines:,}" for name, lines in self.languages.items())
        advice = ", ".join(f"{name} {count:,}" for name, count in self.recommendations.items())
        return [
            ("lines of code", f"{self.lines_of_code:,} ({languages})" if languages else "0"),
            ("dependencies", f"{self.dependencies:,}"),
            ("tests", f"{self.tests:,}"),
            ("recommended", advice),
        ]


def findings_in(artifacts: Path) -> AnalysisFindings:
    """From the report in this folder; without one, nothing was found."""
    try:
        report = msgspec.json.decode((artifacts / JSON_NAME).read_bytes(), type=AnalysisReport)
    except (OSError, msgspec.MsgspecError):
        report = report_of([])
    code = [name for name in report.languages if is_code(name)]
    return AnalysisFindings(
        lines_of_code=report.lines_of_code,
        dependencies=report.dependencies.distinct,
        tests=report.tests,
        languages={name: report.languages[name].code for name in code[:MOST_LANGUAGES]},
        recommendations={name: count for name, count in report.recommendations.items() if count},
    )
