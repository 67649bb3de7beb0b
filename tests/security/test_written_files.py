"""`write_file` stays where its caller lets it: never in the home, below its root, and blind to checksums."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from holdfast.core.errors import BadInput
from holdfast.tools import FileChanged, FileNotWritten, write_file
from holdfast.tools.files import verify_file
from tests.doors.calls import run_process

NAMES = ("holdfast.toml", "token", "key", "ledger.db", "config/agents.toml", "agent.py", "receipts/x")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    for name in ("config", "receipts"):
        (path / name).mkdir(mode=0o700, parents=True)
    monkeypatch.setenv("HOLDFAST_HOME", str(path))
    return path


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# --- the home


@pytest.mark.parametrize("name", NAMES)
def test_no_file_of_the_home_is_made(home: Path, name: str) -> None:
    with pytest.raises(FileNotWritten, match=f"it is in the home of Holdfast, {home}"):
        write_file(str(home / name), "ours")

    assert not (home / name).exists()


@pytest.mark.parametrize("name", NAMES)
def test_no_file_of_the_home_is_replaced_with_the_right_checksum_either(home: Path, name: str) -> None:
    (home / name).write_text("theirs")

    with pytest.raises(FileNotWritten, match="the home of Holdfast"):
        write_file(str(home / name), "ours", expected_sha256=sha256("theirs"))

    assert (home / name).read_text() == "theirs"


def test_no_way_leads_into_the_home(home: Path, work: Path) -> None:
    (work / "link").symlink_to(home)
    (work / "deep").symlink_to(home / "config")
    (work / "file").symlink_to(home / "holdfast.toml")
    ways = [
        work / "link" / "holdfast.toml",
        work / "deep" / "agents.toml",
        work / "file",
        work / ".." / "home" / "holdfast.toml",
        Path(f"/proc/self/root{home}") / "holdfast.toml",
    ]

    for way in ways:
        with pytest.raises(FileNotWritten):
            write_file(str(way), "ours")

    assert sorted(one.name for one in home.rglob("*")) == ["config", "receipts"]


def test_a_root_in_the_home_or_above_it_opens_nothing(home: Path) -> None:
    for root, path in (
        (home, "holdfast.toml"),
        (home / "config", "agents.toml"),
        (home.parent, "home/token"),
    ):
        with pytest.raises(FileNotWritten, match="the home of Holdfast"):
            write_file(path, "ours", root=str(root))


def test_a_file_does_not_take_the_place_of_a_home_that_is_not_there_yet(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(work / "state" / "home"))

    for place in (work / "state", work / "state" / "home"):
        with pytest.raises(FileNotWritten):
            write_file(str(place), "ours")
        place.mkdir()
        place.rmdir() if place.name == "home" else None

    assert write_file(str(work / "other"), "ours").size_bytes == 4


def test_verifying_tells_nothing_of_a_file_in_the_home(home: Path) -> None:
    (home / "token").write_text("guessed")

    verdict = verify_file(str(home / "token"), "guessed")

    assert "it is in the home" in str(verdict)


PROGRAM = """
import holdfast as hf
from holdfast.tools import write_file

@hf.task
async def attack(run: hf.Run, path: str) -> str:
    return (await run.step(write_file, path, "ours")).path
"""


@pytest.mark.slow
def test_a_program_with_another_home_on_its_command_line_does_not_write_there(
    tmp_path: Path, work: Path
) -> None:
    (work / "attacks.py").write_text(PROGRAM)
    home = tmp_path / "elsewhere"
    home.mkdir(mode=0o700)
    place = f"{work / 'attacks.py'}:attack"
    path = f"path={home / 'holdfast.toml'}"

    done = run_process(tmp_path / "default", "run", place, "--arg", path, "--home", str(home))

    assert done.status == 1
    assert "it is in the home of Holdfast" in done.err + done.out
    assert not (home / "holdfast.toml").exists()


# --- below a root


def test_a_path_below_the_root_is_written(work: Path) -> None:
    (work / "a" / "b").mkdir(parents=True)

    for path in ("a/b/one", str(work / "a" / "b" / "two"), "three"):
        write_file(path, "ours", root=str(work))

    assert (work / "a/b/one").read_text() == (work / "a/b/two").read_text() == "ours"
    assert (work / "three").read_text() == "ours"


@pytest.mark.parametrize("path", ["../out", "a/../../out", "/etc/out", "..", ".", "", "a/.."])
def test_a_path_that_does_not_lie_below_the_root_is_refused(work: Path, path: str) -> None:
    (work / "a").mkdir()

    with pytest.raises(BadInput, match="path"):
        write_file(path, "ours", root=str(work))

    assert not (work.parent / "out").exists()


def test_below_the_root_no_link_is_followed(work: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (work / "inner").mkdir()
    (work / "out").symlink_to(outside)
    (work / "in").symlink_to(work / "inner")
    (work / "inner" / "deep").symlink_to(outside)

    for path in ("out/x", "in/x", "inner/deep/x"):
        with pytest.raises(FileNotWritten, match="below root no link is followed"):
            write_file(path, "ours", root=str(work))

    assert list(outside.iterdir()) == []


def test_a_directory_that_becomes_a_link_meanwhile_is_not_followed(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was opened stays what it was: the file lands in the directory, wherever that is called now."""
    from holdfast.tools import files

    outside, write_beside = tmp_path / "outside", files._write_beside
    outside.mkdir()
    (work / "sub").mkdir()

    def exchange(*args: object, **kwargs: object) -> str:
        (work / "sub").rename(work / "moved")
        (work / "sub").symlink_to(outside)
        return write_beside(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "_write_beside", exchange)

    write_file("sub/x", "ours", root=str(work))

    assert list(outside.iterdir()) == []
    assert (work / "moved" / "x").read_text() == "ours"


def test_a_root_that_is_none_is_refused(work: Path) -> None:
    (work / "file").touch()

    for root in (work / "nowhere", work / "file"):
        with pytest.raises(BadInput, match="root"):
            write_file("x", "ours", root=str(root))


# --- checksums


def test_no_error_hands_out_the_checksum_that_lets_the_next_call_replace_the_file(work: Path) -> None:
    path = work / "notes"
    path.write_text("theirs")

    with pytest.raises(FileChanged) as changed:
        write_file(str(path), "ours")
    verdict = verify_file(str(path), "ours", expected_sha256=sha256("older"))

    told = f"{changed.value} {vars(changed.value)} {verdict}"
    assert sha256("theirs") not in told
    assert "read it and write again" in told


def test_a_file_that_cannot_be_read_is_not_replaced(work: Path) -> None:
    os.mkfifo(work / "fifo")

    with pytest.raises(FileNotWritten, match="it is a FIFO"):
        write_file("fifo", "ours", root=str(work))
