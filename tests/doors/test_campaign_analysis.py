"""campaign analyse: from a folder to a report, what failed, and how it goes on."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from tests.analysis.trees import package, repository, tree
from tests.doors.calls import PROGRAM, Opens, Run, environment


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two repositories and a broken package."""
    place = tmp_path / "src"
    repository(place / "one", {"a.py": "x = 1\n"})
    repository(place / "two", {"b.go": "x := 1\n"})
    tree(place, {"bad-1.0.dist-info/METADATA": "Name: bad\n", "bad.py": "z = 1\n"})
    return place


def test_a_folder_becomes_a_report_and_what_failed_is_retried(run: Run, home: Path, folder: Path) -> None:
    called = run("campaign", "analyse", str(folder), "--json")

    assert called.status == 1
    counts = {
        "campaign": "src-analysis",
        "status": "failed",
        "items": 3,
        "added": 3,
        "analysed": 2,
        "failed": 1,
    }
    assert counts.items() <= called.json.items()
    assert called.json["findings"]["languages"] == {"Go": 1, "Python": 1}
    report = home / "artifacts" / "src-analysis" / "analysis-report.md"
    assert called.json["report"] == str(report)
    assert "2 of 3 items" in report.read_text()
    assert "holdfast campaign items src-analysis --phase analysis --status failed" in called.err

    (folder / "bad-1.0.dist-info" / "RECORD").write_text("bad.py,,\n")
    assert run("campaign", "retry", "src-analysis").status == 0
    called = run("campaign", "analyse", str(folder))

    assert called.status == 0
    assert "3 of 3 items" in called.out
    assert "3 of 3 items" in report.read_text()


def test_the_same_command_again_takes_in_what_is_new(run: Run, folder: Path) -> None:
    (folder / "bad-1.0.dist-info" / "METADATA").unlink()
    assert run("campaign", "analyse", str(folder)).status == 0
    repository(folder / "three", {"c.rs": "fn main() {}\n"})
    # The guess at its priority is another one now, and does not matter any more.
    tree(folder / "one", {f"{number}.py": "" for number in range(120)})

    called = run("campaign", "analyse", str(folder), "--json")

    assert called.status == 0
    assert {"items": 3, "added": 1, "analysed": 3}.items() <= called.json.items()


def test_the_list_is_a_file_of_items(run: Run, home: Path, folder: Path, tmp_path: Path) -> None:
    called = run("campaign", "analyse", str(folder), "--list")

    items = [msgspec.json.decode(line) for line in called.out.splitlines()]
    assert {item["id"] for item in items} == {"one", "two", "bad"}
    assert not (home / "ledger.db").exists()
    (tmp_path / "items.jsonl").write_text(called.out)
    made = run(
        *("campaign", "create", "by-hand", "--items", str(tmp_path / "items.jsonl")),
        *("--phases", "analysis,report", "--wait-for-all", "report", "--json"),
        *("--task", "analysis=holdfast.analysis:analyse", "--task", "report=holdfast.analysis:report"),
    )
    assert (made.status, made.json["added"]) == (0, 3)


def test_bare_repositories_are_skipped_aloud(run: Run, folder: Path) -> None:
    mirror = folder / "mirror.git"
    subprocess.run(["git", "clone", "--quiet", "--bare", str(folder / "one"), str(mirror)], check=True)

    called = run("campaign", "analyse", str(folder), "--list")

    assert "mirror" not in called.out
    assert f"skipped 1 bare repository without files to look at; analyse a clone: git clone {mirror}" in (
        called.err
    )


def test_a_detached_analysis_waits_for_a_worker(run: Run, folder: Path) -> None:
    called = run("campaign", "analyse", str(folder), "--detach", "--name", "later", "--json")

    assert called.status == 0
    assert {"campaign": "later", "status": "running", "analysed": 0}.items() <= called.json.items()
    assert "holdfast worker holdfast.analysis" in called.err


def test_a_name_that_another_campaign_has_is_refused(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text('{"id": "one"}\n')
    assert run("campaign", "create", "taken", "--phases", "analysis", "--task", "x").status == 0

    called = run("campaign", "analyse", str(folder), "--name", "taken")

    assert called.status == 3
    assert "has another spec" in called.err


@pytest.mark.parametrize("where", ["memory:", "empty"])
def test_what_cannot_work_is_refused(run: Run, folder: Path, tmp_path: Path, where: str) -> None:
    (tmp_path / "empty").mkdir()
    if where == "empty":
        called = run("campaign", "analyse", str(tmp_path / "empty"))
    else:
        called = run("campaign", "analyse", str(folder), "--store", "memory:")

    assert called.status == 2
    assert "name" in called.err


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "status"), [(signal.SIGTERM, 1), (signal.SIGKILL, -9)], ids=str)
def test_an_analysis_that_is_stopped_goes_on(
    home: Path, tmp_path: Path, run: Run, ledger: Opens, sent: signal.Signals, status: int
) -> None:
    site = tmp_path / "site"
    for number in range(60):
        package(site, f"p{number}", {f"p{number}/{one}.py": "x = 1\n" * 50 for one in range(20)})
    process = subprocess.Popen(
        [*PROGRAM, "campaign", "analyse", str(site)],
        env=environment(home),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "60 items" in process.stderr.readline()
    while not list((home / "artifacts" / "site-analysis").glob("*-analysis.json")):
        time.sleep(0.01)

    process.send_signal(sent)

    assert process.wait(timeout=60) in (status, 0)
    told = process.stderr.read()
    process.stderr.close()
    if process.returncode == 1:
        assert "stopped; what is done is saved. To go on: holdfast campaign analyse" in told
    called = run("campaign", "analyse", str(site), "--json")
    assert (called.status, called.json["analysed"]) == (0, 60)
    with ledger() as store:
        campaign = store.read_now(lambda tx: tx.campaigns.find("site-analysis"))
        assert campaign is not None
        rows = store.read_now(lambda tx: tx.item_phases.page(campaign.id, 0, limit=1000))
    assert {row.attempt for row in rows} == {1}
