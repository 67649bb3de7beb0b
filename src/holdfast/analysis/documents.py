"""The documents of an analysis: where an item is, what each step found, and the file that holds it all."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote_to_bytes

import msgspec

from holdfast.analysis.languages import LineCounts
from holdfast.analysis.manifests import Dependency
from holdfast.analysis.trees import SkippedFiles
from holdfast.core.errors import BadInput

ANALYSIS_ENDING = "-analysis.json"
_FILE_URI = "file://"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where an item is, and where its analysis goes."""

    item: str
    name: str
    campaign: str
    # An absolute path, or a file:// URI if the path is no plain text.
    path: str
    # repository, folder or package (installed by pip: the path is that of its .dist-info).
    kind: str
    artifacts: str

    @property
    def root(self) -> bytes:
        return location(self.path)

    @property
    def analysis(self) -> Path:
        return Path(self.artifacts) / f"{self.item}{ANALYSIS_ENDING}"


class SourceSurvey(msgspec.Struct, frozen=True, kw_only=True):
    """The first look at an item: how many files it has, and in how many parts its lines are counted."""

    place: Place
    files: int
    parts: int
    newest_s: int | None
    skipped: SkippedFiles


class PartCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The lines of one part of an item's files, by language."""

    languages: dict[str, LineCounts]
    skipped: SkippedFiles


class DependencyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What an item is called in its ecosystems, and what it needs."""

    manifests: int = 0
    version: str | None = None
    provides: list[Dependency] = []
    needs: list[Dependency] = []
    notes: list[str] = []


class CoverageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The tests of an item; coverage only if a report in it states one."""

    files: int = 0
    functions: int = 0
    has_ci: bool = False
    coverage: float | None = None


class ChangeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """When an item changed last: its last commit, else the time of its newest file."""

    last_commit: str | None = None
    sha: str | None = None
    newest_file: str | None = None
    days_ago: int | None = None
    note: str | None = None


class AnalysisSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an item's analysis, small enough for its row in the ledger."""

    lines_of_code: int
    dependencies: int
    # None where no coverage report says it: running the tests of an unknown repository is no option.
    test_coverage: float | None
    last_commit: str | None
    merge_recommendation: str
    tests: int
    output_path: str


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """All that was found about one item: the content of `<item>-analysis.json`. With `error` there is nothing
    else: the item could not be analysed."""

    item: str
    name: str
    campaign: str
    kind: str
    error: str | None = None
    summary: AnalysisSummary | None = None
    reason: str | None = None
    lines: LineCounts | None = None
    languages: dict[str, LineCounts] = {}
    dependencies: DependencyFacts | None = None
    tests: CoverageFacts | None = None
    history: ChangeFacts | None = None
    files: int = 0
    skipped: SkippedFiles | None = None
    notes: list[str] = []

    def encode(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode() + "\n"


def location(path: object) -> bytes:
    """The path in an item's fields, as the file system has it. Raises BadInput."""
    if not isinstance(path, str) or not path:
        raise BadInput("path", 'the item has none; give the folder to analyse: {"path": "/srv/repos/one"}')
    try:
        root = (
            unquote_to_bytes(path.removeprefix(_FILE_URI))
            if path.startswith(_FILE_URI)
            else os.fsencode(path)
        )
    except UnicodeEncodeError as error:
        raise BadInput("path", "it is no valid text; write it as a file:// URI") from error
    if not root.startswith(b"/") or b"\0" in root:
        raise BadInput("path", "an absolute path, or a file:// URI of one, is needed")
    return root


def path_text(path: Path) -> str:
    """The path for an item's fields: as it is, or as a URI if it has bytes that no text has."""
    text = str(path)
    return text if text.isprintable() and not text.startswith(_FILE_URI) else path.as_uri()
