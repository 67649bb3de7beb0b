"""The report: damaged files, late items, hostile names, and two processes that write it at once."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from holdfast.analysis import files
from holdfast.analysis.documents import Analysis, AnalysisSummary
from holdfast.analysis.files import locked, write_atomically
from holdfast.analysis.report import check_analysis, report_of, update_report
from holdfast.analysis.report_page import page_of
from holdfast.core.campaign import Item
from holdfast.core.errors import BadInput


def an_analysis(item: str = "one", *, campaign: str = "rd-os", lines: int = 1) -> Analysis:
    summary = AnalysisSummary(
        lines_of_code=lines,
        dependencies=0,
        test_coverage=None,
        last_commit=None,
        merge_recommendation="keep",
        tests=0,
        output_path="",
    )
    return Analysis(item=item, name=item, campaign=campaign, kind="folder", summary=summary)


def written(folder: Path, analysis: Analysis) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / f"{analysis.item}-analysis.json"
    path.write_text(analysis.encode())
    return str(path)


def items_of(folder: Path) -> int:
    return (folder / "analysis-report.md").read_text().count("| keep |") - 1


def test_a_report_is_written_once_for_many_items(artifacts: Path) -> None:
    paths = [written(artifacts, an_analysis(name)) for name in ("one", "two", "three")]
    # The report is newer than a file only if the clock of the file system has ticked since.
    for path in paths:
        os.utime(path, ns=(1, 1))

    updated = [update_report(path).is_new for path in paths]

    assert updated == [True, False, False]
    assert items_of(artifacts) == 3


def test_a_late_item_gets_into_the_report(artifacts: Path) -> None:
    update_report(written(artifacts, an_analysis("one")))
    late = written(artifacts, an_analysis("two"))

    assert update_report(late).is_new
    assert items_of(artifacts) == 2


def test_a_report_of_which_one_file_is_gone_is_written_anew(artifacts: Path) -> None:
    path = written(artifacts, an_analysis())
    os.utime(path, ns=(1, 1))
    for name in ("analysis-report.json", "analysis-report.md"):
        update_report(path)
        (artifacts / name).unlink()

        assert update_report(path).is_new


def test_a_damaged_file_is_a_failure_and_the_others_count(artifacts: Path) -> None:
    path = written(artifacts, an_analysis())
    (artifacts / "bad-analysis.json").write_bytes(b"{\xff")
    os.mkfifo(artifacts / "pipe-analysis.json")

    update_report(path)

    page = (artifacts / "analysis-report.md").read_text()
    assert "1 of 3 items" in page
    assert "| bad | " in page
    assert "| pipe | " in page


def test_two_processes_write_one_report_at_once(artifacts: Path) -> None:
    paths = [written(artifacts, an_analysis(f"item-{number}")) for number in range(20)]
    threads = [threading.Thread(target=update_report, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert items_of(artifacts) == 20


def test_a_process_that_holds_the_lock_for_ever_is_told(
    artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(artifacts, an_analysis())
    monkeypatch.setattr(files, "PATIENCE_S", 0.05)

    with locked(artifacts / ".analysis-report.lock"), pytest.raises(TimeoutError, match="another process"):
        update_report(path)


def test_a_write_that_was_cut_off_leaves_the_old_content(artifacts: Path) -> None:
    artifacts.mkdir()
    write_atomically(artifacts / "a", b"old")
    (artifacts / ".a.tmp").write_bytes(b"half of what was to be wri")

    assert (artifacts / "a").read_bytes() == b"old"
    write_atomically(artifacts / "a", b"new")
    assert (artifacts / "a").read_bytes() == b"new"
    assert sorted(path.name for path in artifacts.iterdir()) == ["a"]


@pytest.mark.parametrize("is_there", [False, True], ids=["missing", "of another campaign"])
def test_an_analysis_that_is_not_this_items_is_refused(artifacts: Path, *, is_there: bool) -> None:
    if is_there:
        written(artifacts, an_analysis(campaign="other"))
    item = Item(id="one", campaign="rd-os", fields={"path": "/one", "artifacts": str(artifacts)})

    with pytest.raises(BadInput, match="holdfast campaign retry rd-os --phase analysis"):
        check_analysis(item)


def test_names_cannot_break_the_page() -> None:
    page = page_of(report_of([an_analysis("a|b<script>`x`[y](z)")]))

    assert "| a\\|b&lt;script>\\`x\\`\\[y](z) |" in page


def test_a_report_of_nothing_is_one() -> None:
    assert "0 of 0 items" in page_of(report_of([]))
