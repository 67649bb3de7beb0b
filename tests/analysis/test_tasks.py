"""The tasks of the campaign on real trees: what they find, what they say of broken items, and kills."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast.analysis import analyse, analysis_spec, find_items, report, steps
from holdfast.analysis.documents import Analysis
from holdfast.analysis.report import AnalysisReport
from holdfast.analysis.steps import decode_analysis
from holdfast.core.transitions import CampaignStatus, ItemStatus
from holdfast.testing import crash_everywhere
from tests.analysis.trees import package, repository, tree

NOW = datetime.now(UTC)  # noqa: TID251 - ages of real files are counted from the real time
FILES: dict[str, str | bytes] = {
    "one/__init__.py": '"""One."""\n',
    "one/work.py": "# What it does.\n\ndef work():\n    return 1\n",
    "tests/test_work.py": "def test_one():\n    assert 1\n\n\nasync def test_two():\n    pass\n",
    "web/app.js": "// one\nlet x = 1;\n",
    "pyproject.toml": '[project]\nname = "one"\ndependencies = ["requests", "two"]\n',
    ".github/workflows/ci.yml": "on: push\n",
    "coverage.xml": '<coverage line-rate="0.785" version="7">',
    "data.bin.py": b"\x00\x01",
    "node_modules/left-pad/index.js": "1\n" * 1000,
}
ItemOf = Callable[[Path], hf.Item]


async def analysed(item: hf.Item) -> Analysis:
    async with hf.open("memory:", tasks=[analyse]) as holdfast:
        summary = await (await holdfast.start(analyse(item))).result()
    assert summary.output_path == str(place(item))
    analysis = written(item)
    assert analysis.summary == summary
    return analysis


def written(item: hf.Item) -> Analysis:
    return decode_analysis(place(item).read_bytes())


def place(item: hf.Item) -> Path:
    return Path(item.fields["artifacts"]) / f"{item.id}-analysis.json"


async def test_a_repository_is_analysed(quick_path: Path, item_of: ItemOf) -> None:
    at = NOW - timedelta(days=10)
    item = item_of(repository(quick_path / "one", FILES, at=at))

    found = await analysed(item)

    assert found.kind == "repository"
    assert found.summary is not None
    assert msgspec.to_builtins(found.summary) == {
        "lines_of_code": 7,
        "dependencies": 2,
        "test_coverage": 78.5,
        "last_commit": at.isoformat(timespec="seconds"),
        "merge_recommendation": "P0-migrate",
        "tests": 2,
        "output_path": str(place(item)),
    }
    languages = {name: (one.files, one.code, one.comment, one.blank) for name, one in found.languages.items()}
    assert languages["Python"] == (3, 6, 2, 3)
    assert languages["JavaScript"] == (1, 1, 1, 0)
    assert found.skipped is not None
    assert (found.skipped.binary, found.skipped.vendored_folders) == (1, 1)
    assert found.reason == "it is active, and has tests and CI"
    assert found.notes == []
    assert place(item).stat().st_mode & 0o777 == 0o600


async def test_an_installed_package_is_analysed(quick_path: Path, item_of: ItemOf) -> None:
    files: dict[str, str | bytes] = {"one/__init__.py": "x = 1\n", "one/_vendor/six.py": "y = 2\n" * 100}
    outside = "/etc/passwd,,\n../outside.py,,\none/missing.py,,\none/out/a.py,,\n"
    needs = ("two>=1", "three; extra == 'web'")
    info = package(quick_path / "site", "one", files, needs=needs, more=outside)
    (quick_path / "outside.py").write_text("z = 3\n")
    tree(quick_path / "elsewhere", {"a.py": "z = 3\n"})
    (quick_path / "site" / "one" / "out").symlink_to(quick_path / "elsewhere")

    found = await analysed(item_of(info))

    assert found.kind == "package"
    assert found.lines is not None
    assert (found.files, found.lines.code) == (1, 1)
    assert found.dependencies is not None
    assert found.dependencies.version == "1.0"
    assert [(one.name, one.kind) for one in found.dependencies.needs] == [
        ("three", "optional"),
        ("two", "runtime"),
    ]
    assert found.summary is not None
    assert found.summary.last_commit is None
    assert found.history is not None
    assert found.history.days_ago == 0


async def test_a_large_item_is_counted_in_parts(
    quick_path: Path, item_of: ItemOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "FILES_PER_PART", 3)
    files: dict[str, str | bytes] = {f"{number}.py": "x = 1\n" for number in range(20)}
    item = item_of(tree(quick_path / "one", files))
    async with hf.open("memory:", tasks=[analyse]) as holdfast:
        handle = await holdfast.start(analyse(item))
        summary = await handle.result()
        names = await holdfast.store.read(lambda tx: [one.name for one in tx.journal.steps(handle.id)])

    assert summary.lines_of_code == 20
    assert names.count("count_part") == 7


@pytest.mark.parametrize(
    ("files", "note"),
    [
        ({}, None),
        ({"pyproject.toml": "[project"}, "pyproject.toml: "),
        ({".git": "gitdir: /etc\n", "a.py": "x = 1\n"}, "not followed"),
    ],
    ids=["empty", "broken manifest", "a file called .git"],
)
async def test_an_odd_folder_gives_an_honest_result(
    quick_path: Path, item_of: ItemOf, files: dict[str, str | bytes], note: str | None
) -> None:
    found = await analysed(item_of(tree(quick_path / "one", files)))

    assert found.summary is not None
    assert found.summary.last_commit is None
    assert [note in one for one in found.notes] == [True] if note else found.notes == []


async def test_a_hostile_tree_is_analysed(quick_path: Path, item_of: ItemOf) -> None:
    one = repository(quick_path / "bad\n\x1b[31mname", {"a.py": "x = 1\n"}, at=NOW)
    os.mkfifo(one / "pipe.py")
    os.mkfifo(one / "package.json")
    (one / "loop").symlink_to(".")
    (one / "passwd.py").symlink_to("/etc/passwd")
    tree(one, {os.fsdecode(b"\xff\xfe.py"): "y = 2\n", "new\nline.py": "y = 2\n"})
    item = item_of(one)
    item = msgspec.structs.replace(
        item, name="bad\n\x1b[31mname", fields={**item.fields, "path": one.as_uri()}
    )

    found = await analysed(item)

    assert found.lines is not None
    assert found.lines.code == 3
    assert found.skipped is not None
    assert (found.skipped.links, found.skipped.special) == (2, 2)
    assert found.name.isprintable()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("missing", "there is no folder"),
        ("file", "is no folder"),
        ("broken-1.0.dist-info", "its RECORD cannot be read"),
        (None, "give the folder to analyse"),
        ("relative", "an absolute path"),
    ],
)
async def test_what_cannot_be_analysed_fails_once_with_the_reason(
    quick_path: Path, item_of: ItemOf, path: str | None, why: str
) -> None:
    (quick_path / "file").touch()
    tree(quick_path / "broken-1.0.dist-info", {"METADATA": "Name: broken\n"})
    item = item_of(quick_path / str(path))
    if path in (None, "relative"):
        item = msgspec.structs.replace(item, fields={**item.fields, "path": path})

    async with hf.open("memory:", tasks=[analyse]) as holdfast:
        handle = await holdfast.start(analyse(item))
        with pytest.raises(hf.TaskFailed, match=why):
            await handle.result()
        runs = await holdfast.store.read(lambda tx: tx.runs.of_task(handle.id))

    assert len(runs) == 1
    if path not in (None, "relative"):
        assert why in str(written(item).error)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_folder_that_may_not_be_read_fails_with_the_reason(quick_path: Path, item_of: ItemOf) -> None:
    one = tree(quick_path / "one", {"a.py": ""})
    one.chmod(0)
    try:
        with pytest.raises(hf.TaskFailed, match="cannot be read"):
            await analysed(item_of(one))
    finally:
        one.chmod(0o700)


# --- kills


@pytest.mark.slow
def test_an_analysis_is_the_same_wherever_it_is_killed(quick_path: Path, item_of: ItemOf) -> None:
    item = item_of(repository(quick_path / "one", FILES, at=NOW))

    killed = asyncio.run(crash_everywhere(analyse(item)))

    assert killed.reviews == 0
    assert killed.result["lines_of_code"] == 7


def test_a_report_is_the_same_wherever_it_is_killed(quick_path: Path, item_of: ItemOf) -> None:
    item = item_of(tree(quick_path / "one", FILES))
    asyncio.run(analysed(item))

    killed = asyncio.run(crash_everywhere(report(item)))

    assert killed.reviews == 0
    assert killed.result["lines_of_code"] == 7


@pytest.mark.slow
def test_an_analysis_that_is_drained_everywhere_goes_on(quick_path: Path, item_of: ItemOf) -> None:
    item = item_of(tree(quick_path / "one", {"a.py": "x = 1\n"}))

    assert asyncio.run(crash_everywhere(analyse(item), drain=True)).result["lines_of_code"] == 1


# --- the campaign


async def campaign(folder: Path, artifacts: Path, *, mend: Callable[[], Any] | None = None) -> hf.Campaign:
    """Analyse a folder to the end; with `mend`, mend what failed and retry it."""
    items = find_items(folder, artifacts=artifacts, now=NOW)
    async with hf.open("memory:", tasks=[analyse, report]) as holdfast:
        campaigns = holdfast.campaigns()
        await campaigns.create("rd-os", analysis_spec(), items)
        await campaigns.start("rd-os")
        ended = await campaigns.wait("rd-os", timeout_s=60)
        if mend is not None:
            assert ended.status is CampaignStatus.FAILED
            mend()
            await campaigns.retry("rd-os")
            ended = await campaigns.wait("rd-os", timeout_s=60)
        progress = await campaigns.progress("rd-os")
        for phase in progress.phases:
            assert phase.counts.done + phase.counts.failed + phase.counts.pending == phase.counts.total
        if ended.status is CampaignStatus.DONE:
            assert {phase.counts.done for phase in progress.phases} == {len(items)}
        return ended


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if not path.name.startswith(".")]


def report_in(artifacts: Path) -> AnalysisReport:
    return msgspec.json.decode((artifacts / "analysis-report.json").read_bytes(), type=AnalysisReport)


async def test_a_folder_becomes_a_report(quick_path: Path, artifacts: Path) -> None:
    folder = quick_path / "repos"
    repository(folder / "one", FILES, at=NOW)
    repository(folder / "two", {"pyproject.toml": '[project]\nname = "two"\n', "a.py": "x = 1\n"}, at=NOW)
    repository(folder / "old", {"a.go": "x := 1\n"}, at=NOW - timedelta(days=4000))

    ended = await campaign(folder, artifacts)

    assert ended.status is CampaignStatus.DONE
    found = report_in(artifacts)
    assert (found.campaign, found.items, found.analysed, found.failed) == ("rd-os", 3, 3, 0)
    assert found.lines_of_code == 9
    assert found.languages["Python"].code == 7
    assert {one.item: one.merge_recommendation for one in found.item_list} == {
        "old": "P3-archive",
        "one": "P0-migrate",
        "two": "P2-migrate",
    }
    assert {one.item: one.dependents for one in found.item_list} == {"old": 0, "one": 0, "two": 1}
    assert (found.dependencies.declared, found.dependencies.between_items) == (2, 1)
    page = (artifacts / "analysis-report.md").read_text()
    assert "3 of 3 items, 9 lines of code, 2 tests" in page
    assert "| two | 1 | 0 | 1 | 0 |" in page
    names = set(names_in(artifacts))
    assert names == {
        "analysis-report.json",
        "analysis-report.md",
        "old-analysis.json",
        "one-analysis.json",
        "two-analysis.json",
    }


async def test_a_broken_item_is_reported_and_analysed_when_it_is_retried(
    quick_path: Path, artifacts: Path
) -> None:
    folder = quick_path / "site"
    package(folder, "one", {"one.py": "x = 1\n"})
    broken = package(folder, "two", {"two.py": "x = 1\n"})
    record = (broken / "RECORD").read_bytes()
    (broken / "RECORD").unlink()
    reports = []

    def mend() -> None:
        reports.append(report_in(artifacts))
        (broken / "RECORD").write_bytes(record)

    ended = await campaign(folder, artifacts, mend=mend)

    assert ended.status is CampaignStatus.DONE
    (before,) = reports
    assert (before.analysed, before.failed) == (1, 1)
    assert "its RECORD cannot be read" in before.failures[0].error
    assert (report_in(artifacts).analysed, report_in(artifacts).failed) == (2, 0)


async def test_a_failed_item_keeps_its_reason_in_the_ledger(quick_path: Path, artifacts: Path) -> None:
    folder = tree(quick_path / "site", {"one-1.0.dist-info/METADATA": "Name: one\n"})
    items = find_items(folder, artifacts=artifacts, now=NOW)
    async with hf.open("memory:", tasks=[analyse, report]) as holdfast:
        campaigns = holdfast.campaigns()
        made = await campaigns.create("rd-os", analysis_spec(), items)
        await campaigns.start("rd-os")
        await campaigns.wait("rd-os", timeout_s=60)
        (one,) = await holdfast.store.read(lambda tx: tx.item_phases.page(made.id, 0))

    assert one.status is ItemStatus.FAILED
    assert "its RECORD cannot be read" in str(one.error)
