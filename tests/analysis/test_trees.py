"""Hostile trees: links, loops, pipes, depth, size, names, and folders that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.analysis import trees
from holdfast.analysis.trees import SkippedFiles, TreeFile, read_file, read_regular, walk
from tests.analysis.trees import tree


def walked(folder: Path, **bounds: int) -> tuple[list[bytes], SkippedFiles]:
    skipped = SkippedFiles()
    found = [file.relative for file in walk(os.fsencode(folder), skipped, **bounds)]
    return found, skipped


def test_files_come_in_the_order_of_their_names(quick_path: Path) -> None:
    tree(quick_path, {"b/2": "", "b/1": "", "a": "", "c/d/e": "", "z": ""})

    assert walked(quick_path)[0] == [b"a", b"z", b"b/1", b"b/2", b"c/d/e"]


def test_links_are_counted_and_never_followed(quick_path: Path) -> None:
    outside = tree(quick_path / "outside", {"secret.py": "x = 1"})
    root = tree(quick_path / "root", {"a.py": ""})
    (root / "loop").symlink_to(root)
    (root / "out").symlink_to(outside)
    (root / "file.py").symlink_to(outside / "secret.py")
    (root / "broken").symlink_to("nowhere")

    found, skipped = walked(root)

    assert found == [b"a.py"]
    assert skipped == SkippedFiles(links=4)


def test_pipes_and_sockets_are_not_opened(quick_path: Path) -> None:
    os.mkfifo(quick_path / "pipe.py")

    found, skipped = walked(quick_path)

    assert found == []
    assert skipped == SkippedFiles(special=1)


def test_a_pipe_in_place_of_a_file_does_not_block(quick_path: Path) -> None:
    os.mkfifo(quick_path / "pipe.py")
    path = os.fsencode(quick_path / "pipe.py")
    skipped = SkippedFiles()

    assert read_file(TreeFile(path, b"pipe.py", 10, 0), skipped) is None
    assert skipped == SkippedFiles(unreadable=1)
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(path, 10)


def test_a_link_in_place_of_a_file_is_not_read(quick_path: Path) -> None:
    (quick_path / "a").write_text("secret")
    (quick_path / "b").symlink_to("a")
    skipped = SkippedFiles()

    assert read_file(TreeFile(os.fsencode(quick_path / "b"), b"b", 1, 0), skipped) is None
    assert skipped == SkippedFiles(unreadable=1)


def test_a_file_that_grew_beyond_the_limit_is_not_read(quick_path: Path) -> None:
    (quick_path / "a").write_bytes(b"x" * 100)
    path = os.fsencode(quick_path / "a")
    skipped = SkippedFiles()

    assert read_file(TreeFile(path, b"a", 10, 0), skipped, max_bytes=50) is None
    assert read_file(TreeFile(path, b"a", 100, 0), skipped, max_bytes=50) is None
    assert read_file(TreeFile(path, b"a", 100, 0), skipped, max_bytes=100) == b"x" * 100
    assert skipped == SkippedFiles(large=2)


def test_vendored_folders_are_passed_over(quick_path: Path) -> None:
    tree(quick_path, {f"{name}/a.py": "" for name in ("node_modules", "vendor", ".git", "src", ".venv")})

    found, skipped = walked(quick_path)

    assert found == [b"src/a.py"]
    assert skipped.vendored_folders == 3  # .git is no code of others


def test_a_tree_with_too_many_entries_is_cut_and_says_so(quick_path: Path) -> None:
    tree(quick_path, {f"{one:03d}.py": "" for one in range(20)})

    found, skipped = walked(quick_path, max_entries=5)

    assert (len(found), skipped.is_cut) == (5, True)


def test_folders_without_end_are_cut(quick_path: Path) -> None:
    deep = quick_path.joinpath(*(["d"] * (trees.MAX_DEPTH + 5)))
    tree(deep, {"a.py": ""})

    found, skipped = walked(quick_path)

    assert (found, skipped.is_cut) == ([], True)


def test_names_may_be_any_bytes(quick_path: Path) -> None:
    names = [b"new\nline.py", b"\x1b[31mred.py", b"\xff\xfe.py", b"-rf", b"a b"]
    for name in names:
        Path(os.fsdecode(os.fsencode(quick_path) + b"/" + name)).touch()

    assert walked(quick_path)[0] == sorted(names)


def test_a_folder_that_cannot_be_read_is_counted(quick_path: Path) -> None:
    found, skipped = walked(quick_path / "missing")

    assert (found, skipped) == ([], SkippedFiles(unreadable=1))
