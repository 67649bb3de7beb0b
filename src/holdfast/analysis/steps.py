"""The steps of an analysis: each reads the item anew, changes nothing in it, and returns what it found."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import msgspec

from holdfast import trust
from holdfast.analysis import history, packages, tests_in_trees
from holdfast.analysis.documents import (
    Analysis,
    AnalysisSummary,
    ChangeFacts,
    CoverageFacts,
    DependencyFacts,
    PartCounts,
    Place,
    SourceSurvey,
    location,
)
from holdfast.analysis.files import write_atomically
from holdfast.analysis.languages import LineCounts, count_lines, is_binary, is_code, language_of
from holdfast.analysis.manifests import (
    Dependency,
    ManifestUnreadable,
    is_manifest,
    python_name,
    python_needs,
    read_manifest,
)
from holdfast.analysis.recommendation import recommend
from holdfast.analysis.trees import SkippedFiles, TreeFile, read_file, walk
from holdfast.config import default_home
from holdfast.core.campaign import Item
from holdfast.core.clock import SystemClock
from holdfast.core.errors import BadInput
from holdfast.core.step_declarations import DidNotHappen, Happened, Verdict, tool, verifiable
from holdfast.views.text import one_line

FILES_PER_PART = 400
MAX_PARTS = 16
MAX_DEPENDENCIES = 2000
MAX_MANIFESTS = 500
MAX_NOTES = 20
_MAX_MANIFEST_BYTES = 1024 * 1024


def survey(item: Item) -> SourceSurvey:
    """Find out what the item is and how large. Raises BadInput if it cannot be analysed; its file says so."""
    place = place_of(item, "folder")
    try:
        place = place_of(item, _kind_of(place))
        skipped, files, newest = SkippedFiles(), 0, None
        for file in files_of(place, skipped):
            files += 1
            newest = max(newest or 0, file.modified_s)
    except BadInput as error:
        _write_failure(place, str(error))
        raise
    parts = min(MAX_PARTS, 1 + files // FILES_PER_PART)
    return SourceSurvey(place=place, files=files, parts=parts, newest_s=newest, skipped=skipped)


def count_part(place: Place, part: int, parts: int) -> PartCounts:
    """Count the lines of the files of one part; each file is in one part, by its name."""
    languages: dict[str, LineCounts] = {}
    skipped = SkippedFiles()
    for file in files_of(place, SkippedFiles()):
        language = language_of(file.name)
        if language is None or zlib.crc32(file.relative) % parts != part:
            continue
        content = read_file(file, skipped)
        if content is None:
            continue
        if is_binary(content):
            skipped.binary += 1
            continue
        languages.setdefault(language.name, LineCounts()).add(count_lines(content, language))
    return PartCounts(languages=languages, skipped=skipped)


def find_dependencies(place: Place) -> DependencyFacts:
    """Read the manifests of the item; a broken one is noted, and the others count."""
    if place.kind == "package":
        metadata = packages.read_metadata(place.root)
        name = python_name(metadata.name)
        return DependencyFacts(
            manifests=1,
            version=one_line(metadata.version, 100) or None,
            provides=[] if name is None else [Dependency("pypi", name)],
            needs=sorted(set(python_needs(metadata.requires)))[:MAX_DEPENDENCIES],
        )
    needs, provides, notes, manifests = set[Dependency](), set[Dependency](), list[str](), 0
    for file in files_of(place, SkippedFiles()):
        name = file.name.decode("ascii", "replace")
        if not is_manifest(name):
            continue
        manifests += 1
        if manifests > MAX_MANIFESTS:
            notes.append(f"only the first {MAX_MANIFESTS} manifests were read")
            break
        content = read_file(file, SkippedFiles(), max_bytes=_MAX_MANIFEST_BYTES)
        if content is None:
            notes.append(f"{name} cannot be read")
            continue
        try:
            facts = read_manifest(name, content)
        except ManifestUnreadable as error:
            notes.append(str(error))
            continue
        needs.update(facts.needs)
        provides.update(facts.provides)
    if len(needs) > MAX_DEPENDENCIES:
        notes.append(f"only {MAX_DEPENDENCIES:,} of {len(needs):,} dependencies are listed")
    return DependencyFacts(
        manifests=manifests,
        provides=sorted(provides)[:MAX_DEPENDENCIES],
        needs=sorted(needs)[:MAX_DEPENDENCIES],
        notes=notes[:MAX_NOTES],
    )


def find_tests(place: Place) -> CoverageFacts:
    """Count test files and test functions by the conventions of their languages; run none of them."""
    files = functions = 0
    has_ci, coverage = False, None
    for file in files_of(place, SkippedFiles()):
        has_ci = has_ci or tests_in_trees.is_ci(file.relative)
        if tests_in_trees.is_coverage_report(file.relative):
            content = read_file(file, SkippedFiles(), max_bytes=tests_in_trees.MAX_COVERAGE_BYTES)
            if content is not None and coverage is None:
                coverage = tests_in_trees.stated_coverage(file.relative, content)
        pattern = tests_in_trees.pattern_of_tests(file.relative)
        if pattern is None:
            continue
        content = read_file(file, SkippedFiles())
        found = 0 if content is None or is_binary(content) else len(pattern.findall(content))
        files += bool(found)
        functions += found
    return CoverageFacts(files=files, functions=functions, has_ci=has_ci, coverage=coverage)


async def find_last_change(place: Place, newest_s: int | None) -> ChangeFacts:
    """The last commit, from git; for what has none, the time of the newest file."""
    commit = history.LastCommit()
    if place.kind == "repository":
        commit = await history.last_commit(Path(os.fsdecode(place.root)))
    newest = None if newest_s is None else _day_of(newest_s)
    changed = newest if commit.at is None else commit.at.astimezone(UTC).date()
    today = SystemClock().now().date()
    return ChangeFacts(
        last_commit=None if commit.at is None else commit.at.isoformat(),
        sha=commit.sha,
        newest_file=None if newest is None else newest.isoformat(),
        days_ago=None if changed is None else max(0, (today - changed).days),
        note=commit.note,
    )


def assembled(
    found: SourceSurvey,
    parts: list[PartCounts],
    dependencies: DependencyFacts,
    tests: CoverageFacts,
    change: ChangeFacts,
) -> Analysis:
    """The whole analysis, from what the steps found. Pure."""
    place = found.place
    languages: dict[str, LineCounts] = {}
    skipped = SkippedFiles()
    skipped.add(found.skipped)
    for part in parts:
        skipped.add(part.skipped)
        for name, counts in part.languages.items():
            languages.setdefault(name, LineCounts()).add(counts)
    lines = LineCounts()
    for counts in languages.values():
        lines.add(counts)
    code = sum(counts.code for name, counts in languages.items() if is_code(name))
    recommendation, reason = recommend(
        lines_of_code=code, tests=tests.functions, has_ci=tests.has_ci, days_since_change=change.days_ago
    )
    summary = AnalysisSummary(
        lines_of_code=code,
        dependencies=len(dependencies.needs),
        test_coverage=tests.coverage,
        last_commit=change.last_commit,
        merge_recommendation=recommendation.value,
        tests=tests.functions,
        output_path=str(place.analysis),
    )
    return Analysis(
        item=place.item,
        name=place.name,
        campaign=place.campaign,
        kind=place.kind,
        summary=summary,
        reason=reason,
        lines=lines,
        languages=dict(sorted(languages.items(), key=lambda pair: (-pair[1].code, pair[0]))),
        dependencies=dependencies,
        tests=tests,
        history=change,
        files=found.files,
        skipped=skipped,
        notes=_notes(skipped, dependencies, change),
    )


# --- the file


def _verify_written(path: str, content: str) -> Verdict:
    try:
        is_there = Path(path).read_bytes() == content.encode()
    except OSError:
        is_there = False
    return Happened() if is_there else DidNotHappen()


@tool(effect=verifiable(_verify_written, local=True), name="write_analysis")
def write_analysis(path: str, content: str) -> None:
    """Write the file of an analysis, once: after a crash, a look at the file shows whether it was written."""
    target = Path(path)
    trust.make_private_directory(target.parent)
    write_atomically(target, content.encode())


def _write_failure(place: Place, error: str) -> None:
    failed = Analysis(
        item=place.item, name=place.name, campaign=place.campaign, kind=place.kind, error=one_line(error, 500)
    )
    write_analysis(str(place.analysis), failed.encode())


# --- where


def files_of(place: Place, skipped: SkippedFiles) -> Iterator[TreeFile]:
    """The files that belong to the item. Raises BadInput if they cannot be listed."""
    if place.kind == "package":
        return packages.recorded_files(place.root, skipped)
    return walk(place.root, skipped)


def place_of(item: Item, kind: str) -> Place:
    location(item.fields.get("path"))
    given = item.fields.get("artifacts")
    folder = default_home(os.environ) / "artifacts" / (item.campaign or "analysis")
    if given is not None:
        folder = Path(os.fsdecode(location(given)))
    return Place(
        item=item.id,
        name=one_line(item.name or item.id),
        campaign=item.campaign,
        path=item.fields["path"],
        kind=kind,
        artifacts=str(folder),
    )


def _kind_of(place: Place) -> str:
    """What the folder is. Raises BadInput if it is no folder, or cannot be read."""
    root = place.root
    shown = one_line(place.path)
    try:
        with os.scandir(root) as entries:
            names = {entry.name for entry in entries if entry.name in (b".git", b"METADATA")}
    except FileNotFoundError as error:
        raise BadInput("path", f"there is no folder {shown} on this host") from error
    except NotADirectoryError as error:
        raise BadInput("path", f"{shown} is no folder") from error
    except OSError as error:
        raise BadInput("path", f"{shown} cannot be read: {error.strerror}") from error
    if root.rstrip(b"/").endswith(packages.DIST_INFO) and b"METADATA" in names:
        return "package"
    return "repository" if b".git" in names else "folder"


def _day_of(seconds: int) -> date | None:
    try:
        return datetime.fromtimestamp(seconds, UTC).date()
    except (ValueError, OverflowError, OSError):  # a file may claim any time
        return None


def _notes(skipped: SkippedFiles, dependencies: DependencyFacts, change: ChangeFacts) -> list[str]:
    notes = [*dependencies.notes]
    if change.note is not None:
        notes.append(change.note)
    if skipped.is_cut:
        notes.append("it is too large or too deep to be looked at as a whole: the counts are of a part of it")
    if skipped.unreadable:
        notes.append(f"{skipped.unreadable:,} files or folders could not be read")
    return notes[:MAX_NOTES]


def decode_analysis(content: bytes) -> Analysis:
    """Raises BadInput."""
    try:
        return msgspec.json.decode(content, type=Analysis)
    except msgspec.MsgspecError as error:
        raise BadInput("analysis", f"its file is damaged: {error}") from error
