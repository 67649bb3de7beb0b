"""A -wal that was damaged after its commits were flushed: noticed, and nothing is resumed unseen."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite_file import connect
from holdfast.testing import FakeClock
from tests.engine.bit_flips import flip

HEADER, FRAME = 32, 24 + 4096
COMMITS = 6


@pytest.fixture
def crashed(quick_path: Path) -> Path:
    """A ledger as a killed process leaves it: its newest commits, a frame each, stand in the -wal alone."""
    path, copy = quick_path / "ledger.db", quick_path / "copy.db"
    SqliteStore(path, clock=FakeClock()).close()
    with closing(connect(path)) as connection:
        for number in range(COMMITS):
            connection.execute("UPDATE ledger_facts SET value = ? WHERE name = 'mark'", (str(number + 100),))
        for suffix in ("", "-wal"):
            Path(f"{copy}{suffix}").write_bytes(Path(f"{path}{suffix}").read_bytes())
    assert wal_of(copy).stat().st_size == HEADER + COMMITS * FRAME
    return copy


def wal_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def why_held(path: Path) -> str | None:
    with closing(SqliteStore(path, clock=FakeClock())) as store:
        return store.held_why()


def test_a_whole_wal_is_believed(crashed: Path) -> None:
    assert why_held(crashed) is None


@pytest.mark.parametrize("frame", range(COMMITS - 2))
@pytest.mark.parametrize("byte", [4, 9, 17, 24 + 1000], ids=["size", "salt", "checksum", "page"])
def test_a_damaged_frame_with_commits_behind_it_holds_resumes(crashed: Path, frame: int, byte: int) -> None:
    flip(wal_of(crashed), HEADER + frame * FRAME + byte, 5)

    assert "WAL" in (why_held(crashed) or "")


@pytest.mark.parametrize("byte", range(0, HEADER, 5))
def test_a_damaged_header_holds_resumes(crashed: Path, byte: int) -> None:
    flip(wal_of(crashed), byte, 2)

    assert "WAL" in (why_held(crashed) or "")


@pytest.mark.parametrize(
    "size", [0, 16, HEADER, HEADER + FRAME // 2, HEADER + 2 * FRAME, HEADER + 3 * FRAME - 1]
)
def test_a_wal_that_a_crash_cut_short_is_no_damage(crashed: Path, size: int) -> None:
    """What a crash cuts was not acknowledged; where it was, the mark tells."""
    with wal_of(crashed).open("r+b") as file:
        file.truncate(size)

    assert why_held(crashed) is None


def test_the_last_commit_cannot_be_told_from_one_that_a_crash_cut_short(crashed: Path) -> None:
    flip(wal_of(crashed), HEADER + COMMITS * FRAME - 1, 0)

    assert why_held(crashed) is None


def test_resumes_stay_held_until_a_person_accepts_and_then_for_good(crashed: Path) -> None:
    flip(wal_of(crashed), HEADER + FRAME + 100, 0)

    assert why_held(crashed) is not None
    assert why_held(crashed) is not None
    with closing(SqliteStore(crashed, clock=FakeClock())) as store:
        store.accept()
    assert why_held(crashed) is None
