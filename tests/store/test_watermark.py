"""A mark beside the database shows when an older one was put in its place."""

from __future__ import annotations

import os
import stat
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from holdfast.core.errors import StoreUnavailable
from holdfast.store import watermark
from holdfast.store.watermark import MarkCheck, Unreadable, Watermark, compare, mark_path, read, write

WRITTEN = Watermark(ledger_id="ledger_a", mark=41, written_at=1_700_000_000_000_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return mark_path(tmp_path / "ledger.db")


def test_the_mark_lies_beside_its_database() -> None:
    assert mark_path(Path("/x/ledger.db")) == Path("/x/ledger.db-mark")


def test_what_was_written_is_read_back(path: Path) -> None:
    write(path, WRITTEN)

    assert read(path) == WRITTEN


def test_a_later_mark_replaces_the_earlier_one_and_leaves_nothing_beside_it(path: Path) -> None:
    write(path, WRITTEN)
    later = Watermark(ledger_id="ledger_a", mark=42, written_at=1_700_000_001_000_000)
    write(path, later)

    assert read(path) == later
    assert list(path.parent.iterdir()) == [path]


def test_only_its_user_may_read_the_mark(path: Path) -> None:
    write(path, WRITTEN)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_where_no_mark_was_ever_written_there_is_none(path: Path) -> None:
    assert read(path) is None


def test_a_mark_cut_short_at_any_byte_is_unreadable(path: Path) -> None:
    write(path, WRITTEN)
    whole = path.read_bytes()

    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert isinstance(read(path), Unreadable), f"cut to {length} bytes"


def test_a_mark_with_any_bit_flipped_is_unreadable(path: Path) -> None:
    write(path, WRITTEN)
    whole = path.read_bytes()

    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        assert isinstance(read(path), Unreadable), f"bit {bit}"


@pytest.mark.parametrize(
    "line",
    [
        b'{"ledger_id":"ledger_a","mark":"41","written_at":1}',
        b'{"ledger_id":"ledger_a","mark":true,"written_at":1}',
        b'{"ledger_id":7,"mark":41,"written_at":1}',
        b'{"ledger_id":"ledger_a","mark":41}',
        b"[]",
        b"41",
        b"",
        b"\xff\xfe",
    ],
)
def test_a_mark_of_the_wrong_shape_is_unreadable_even_with_a_good_digest(path: Path, line: bytes) -> None:
    path.write_bytes(line + b"\n" + watermark._digest(line) + b"\n")

    found = read(path)

    assert isinstance(found, Unreadable)
    assert str(path) in found.reason


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"x" * 1_000_000])
def test_a_mark_of_rubbish_is_unreadable(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    assert isinstance(read(path), Unreadable)


def test_a_directory_in_place_of_the_mark_is_unreadable_and_says_why(path: Path) -> None:
    path.mkdir()

    found = read(path)

    assert isinstance(found, Unreadable)
    assert "Is a directory" in found.reason


def test_a_write_that_fails_leaves_the_old_mark_and_nothing_else(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_is_full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    write(path, WRITTEN)
    monkeypatch.setattr(os, "fsync", disk_is_full)

    with pytest.raises(StoreUnavailable, match="No space left"):
        write(path, Watermark(ledger_id="ledger_a", mark=99, written_at=1))

    assert read(path) == WRITTEN
    assert list(path.parent.iterdir()) == [path]


def test_a_mark_is_durable_before_it_takes_the_old_ones_place(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is the promise: contents, then name, then directory."""
    calls: list[str] = []
    real_sync, real_replace = os.fsync, Path.replace

    def sync(descriptor: int) -> None:
        calls.append("sync directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        real_sync(descriptor)

    def replace(self: Path, target: Path) -> Path:
        calls.append("replace")
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    write(path, WRITTEN)

    assert calls == ["sync file", "replace", "sync directory"]


@pytest.mark.parametrize(
    ("file", "ledger_id", "mark", "verdict"),
    [
        (None, "ledger_a", 0, MarkCheck.FRESH),
        (WRITTEN, "ledger_a", 41, MarkCheck.CURRENT),
        (WRITTEN, "ledger_a", 42, MarkCheck.CURRENT),
        (WRITTEN, "ledger_a", 40, MarkCheck.OLDER),
        (WRITTEN, "ledger_a", 0, MarkCheck.OLDER),
        (WRITTEN, "ledger_b", 41, MarkCheck.FOREIGN),
        (WRITTEN, "ledger_b", 0, MarkCheck.FOREIGN),
        (Unreadable(reason="cut short"), "ledger_a", 41, MarkCheck.UNREADABLE),
    ],
)
def test_a_database_is_judged_by_its_mark(
    file: Watermark | Unreadable | None, ledger_id: str, mark: int, verdict: MarkCheck
) -> None:
    assert compare(file, ledger_id=ledger_id, mark=mark) is verdict


def test_a_restored_copy_of_the_database_is_found_to_be_older(tmp_path: Path) -> None:
    database, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    with closing(apsw.Connection(str(database))) as ledger, closing(apsw.Connection(str(copy))) as target:
        ledger.pragma("user_version", 40)
        with target.backup("main", ledger, "main") as backup:
            backup.step()
        ledger.pragma("user_version", 41)
        write(mark_path(database), WRITTEN)
    copy.replace(database)

    with closing(apsw.Connection(str(database))) as restored:
        mark = restored.pragma("user_version")

    assert isinstance(mark, int)
    assert compare(read(mark_path(database)), ledger_id="ledger_a", mark=mark) is MarkCheck.OLDER
