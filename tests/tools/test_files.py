"""A file is written whole or not at all, and never over what another program wrote."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import BadInput, Conflict, PayloadTooLarge
from holdfast.core.payload import MAX_PAYLOAD_BYTES
from holdfast.core.step_declarations import DidNotHappen, Happened, Unknown
from holdfast.tools import FileChanged, FileNotWritten, FileResult, files, write_file
from holdfast.tools.files import verify_file
from tests.tools.keyed_calls import KEY, verify


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


# --- writing


def test_a_new_file_has_the_content_and_nothing_else_is_left(quick_path: Path) -> None:
    path = quick_path / "notes.txt"

    result = write_file(str(path), "High tide\n\u2603")

    assert result == FileResult(path=str(path), sha256=sha256("High tide\n\u2603"), size_bytes=13)
    assert path.read_bytes() == b"High tide\n\xe2\x98\x83"
    assert names_in(quick_path) == ["notes.txt"]


def test_a_file_that_is_as_it_was_recorded_is_replaced_and_keeps_its_mode(quick_path: Path) -> None:
    path = quick_path / "script"
    path.write_text("old")
    path.chmod(0o750)

    write_file(str(path), "new", expected_sha256=sha256("old"))

    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert names_in(quick_path) == ["script"]


def test_a_file_that_another_program_changed_stays_as_it_is(quick_path: Path) -> None:
    path = quick_path / "notes.txt"
    path.write_text("theirs")

    with pytest.raises(FileChanged) as changed:
        write_file(str(path), "ours", expected_sha256=sha256("old"))

    error = changed.value
    assert isinstance(error, Conflict)
    assert (error.path, error.expected_sha256) == (str(path), sha256("old"))
    assert all(part in str(error) for part in (str(path), sha256("old"), "write again"))
    assert path.read_text() == "theirs"
    assert names_in(quick_path) == ["notes.txt"]


def test_a_file_of_which_nothing_was_recorded_is_not_replaced(quick_path: Path) -> None:
    path = quick_path / "notes.txt"
    path.write_text("theirs")

    with pytest.raises(FileChanged, match=r"is not as expected \(no file there\)"):
        write_file(str(path), "ours")

    assert path.read_text() == "theirs"


def test_a_file_that_has_the_content_already_is_left_alone(quick_path: Path) -> None:
    path = quick_path / "notes.txt"
    path.write_text("same")
    before = path.stat()

    result = write_file(str(path), "same", expected_sha256=sha256("older still"))

    assert result.sha256 == sha256("same")
    after = path.stat()  # without the time at which it was read
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_file_that_appears_between_the_look_and_the_write_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch, quick_path: Path
) -> None:
    path, write_beside = quick_path / "notes.txt", files._write_beside

    def write_slowly(*args: Any, **kwargs: Any) -> str:
        path.write_text("theirs")
        return write_beside(*args, **kwargs)

    monkeypatch.setattr(files, "_write_beside", write_slowly)

    with pytest.raises(FileChanged):
        write_file(str(path), "ours")
    path.write_text("old")
    with pytest.raises(FileChanged):
        write_file(str(path), "ours", expected_sha256=sha256("old"))

    assert path.read_text() == "theirs"
    assert names_in(quick_path) == ["notes.txt"]


def test_a_file_system_without_hard_links_will_do(monkeypatch: pytest.MonkeyPatch, quick_path: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)

    write_file(str(quick_path / "notes.txt"), "ours")

    assert (quick_path / "notes.txt").read_text() == "ours"
    assert names_in(quick_path) == ["notes.txt"]


def test_a_disk_that_is_full_leaves_the_old_file_and_no_other(
    monkeypatch: pytest.MonkeyPatch, quick_path: Path
) -> None:
    path = quick_path / "notes.txt"
    path.write_text("old")

    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)

    with pytest.raises(FileNotWritten, match=r"notes\.txt was not written: No space left on device"):
        write_file(str(path), "new", expected_sha256=sha256("old"))

    assert path.read_text() == "old"
    assert names_in(quick_path) == ["notes.txt"]


def test_a_link_is_not_followed(quick_path: Path) -> None:
    (quick_path / "link").symlink_to(quick_path / "target")

    with pytest.raises(FileNotWritten, match="it is a link; name the file it points to"):
        write_file(str(quick_path / "link"), "x")

    assert names_in(quick_path) == ["link"]


def test_what_is_no_file_is_named(quick_path: Path) -> None:
    (quick_path / "directory").mkdir()
    os.mkfifo(quick_path / "fifo")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(quick_path / "socket"))
    listener.close()
    problems = []

    for name in ("directory", "fifo", "socket", "missing/below", "directory/../fifo/below"):
        with pytest.raises(FileNotWritten) as refusal:
            write_file(str(quick_path / name), "x")
        problems.append(refusal.value.why)

    assert problems == [
        "it is a directory, not a file; name a file",
        "it is a FIFO, not a file; name a file",
        "it is a socket, not a file; name a file",
        f"the directory {quick_path}/missing does not exist; make it first",
        "Not a directory",
    ]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", "is empty"),
        ("a\0b", "a NUL at 1"),
        ("\udc80", "surrogate"),
        (b"a", "not bytes"),
        (None, "not NoneType"),
        ("/tmp/", "names a directory"),
        ("/", "names a directory"),
        ("a/..", "names a directory"),
        ("a/.", "names a directory"),
    ],
)
def test_no_such_path(path: Any, problem: str) -> None:
    with pytest.raises(BadInput, match=rf"path: .*{problem}"):
        write_file(path, "x")


def test_a_name_that_is_too_long_is_an_error_with_a_name(quick_path: Path) -> None:
    with pytest.raises(FileNotWritten, match="File name too long"):
        write_file(str(quick_path / ("x" * 300)), "x")
    write_file(str(quick_path / ("x" * 255)), "x")

    assert names_in(quick_path) == ["x" * 255]


@pytest.mark.parametrize("content", [b"bytes", None, 7, "\ud800"])
def test_no_such_content(quick_path: Path, content: Any) -> None:
    with pytest.raises(BadInput, match="content: "):
        write_file(str(quick_path / "a"), content)


def test_too_much_content_is_refused(quick_path: Path) -> None:
    with pytest.raises(PayloadTooLarge):
        write_file(str(quick_path / "a"), "x" * (MAX_PAYLOAD_BYTES + 1))


@pytest.mark.parametrize("checksum", ["", "abc", "A" * 64, 7])
def test_no_such_checksum(quick_path: Path, checksum: Any) -> None:
    with pytest.raises(BadInput, match="expected_sha256: 64 lowercase"):
        write_file(str(quick_path / "a"), "x", expected_sha256=checksum)


# --- verifying


async def test_the_file_tells_whether_it_was_written(quick_path: Path) -> None:
    path, old = str(quick_path / "notes.txt"), sha256("old")
    absent = await verify(write_file, KEY, path, "new", expected_sha256=old)
    write_file(path, "old")
    as_before = await verify(write_file, KEY, path, "new", expected_sha256=old)
    result = write_file(path, "new", expected_sha256=old)
    written = await verify(write_file, KEY, path, "new", expected_sha256=old)
    as_others_want = await verify(write_file, KEY, path, "newer", expected_sha256=old)

    assert (absent, as_before, written) == (DidNotHappen(), DidNotHappen(), Happened(result))
    assert isinstance(as_others_want, Unknown)
    assert all(part in as_others_want.why for part in (path, sha256("newer"), old))
    assert sha256("new") not in as_others_want.why


def test_what_is_no_file_any_more_tells_nothing(quick_path: Path) -> None:
    (quick_path / "link").symlink_to(quick_path / "target")

    verdict = verify_file(str(quick_path / "link"), "x")

    assert isinstance(verdict, Unknown)
    assert "it is a link" in verdict.why


def test_what_was_written_is_made_durable_before_it_is_said_to_have_happened(
    monkeypatch: pytest.MonkeyPatch, quick_path: Path
) -> None:
    """The writer may have died between the rename and the moment when the disk had it."""
    write_file(str(quick_path / "a"), "x")
    synced: list[bool] = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
    )

    verify_file(str(quick_path / "a"), "x")

    assert synced == [False, True]
