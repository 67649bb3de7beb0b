"""Items of a folder: which folders are items, what they are called, and the first guess at them."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.analysis.discovery import find_items
from holdfast.analysis.documents import location
from holdfast.core.campaign import Item, check_item
from holdfast.core.errors import BadInput
from tests.analysis.trees import package, repository, tree
from tests.doors.calls import CANARIES

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def found(folder: Path) -> list[Item]:
    items = find_items(folder, artifacts=folder / "artifacts", now=NOW)
    # Every item must be one that a campaign takes, and lead back to its folder.
    for number, item in enumerate(items):
        check_item(item, number)
        assert Path(os.fsdecode(location(item.fields["path"]))).is_dir()
    return items


def ids(folder: Path) -> list[str]:
    return sorted(item.id for item in found(folder))


def test_repositories_packages_and_projects_are_items(quick_path: Path) -> None:
    repository(quick_path / "one", {"a.py": ""})
    tree(quick_path / "two", {"Cargo.toml": ""})
    tree(quick_path / "three", {"setup.py": ""})
    package(quick_path, "four", {"four.py": "x = 1\n"})
    tree(quick_path / "photos", {"a.jpg": ""})

    assert ids(quick_path) == ["four", "one", "three", "two"]


def test_a_folder_that_is_a_repository_is_one_item(quick_path: Path) -> None:
    repository(quick_path / "one", {"sub/setup.py": ""})

    assert ids(quick_path / "one") == ["one"]


def test_repositories_are_found_below_their_owners_and_hosts(quick_path: Path) -> None:
    repository(quick_path / "github.com" / "ada" / "one", {})
    repository(quick_path / "a" / "b" / "c" / "too-deep", {})
    repository(quick_path / "node_modules" / "left-pad", {})

    assert ids(quick_path) == ["one"]


def test_links_are_not_followed(quick_path: Path) -> None:
    repository(quick_path / "one", {})
    (quick_path / "two").symlink_to("one")
    (quick_path / "loop").symlink_to(".")

    assert ids(quick_path) == ["one"]


def test_names_that_are_no_ids_get_one(quick_path: Path) -> None:
    names = ["new\nline", "\x1b[31mred", os.fsdecode(b"\xff\xfe"), "-rf", "a b", CANARIES[0], "x" * 120]
    for name in names:
        repository(quick_path / name, {})

    items = found(quick_path)

    assert len({item.id for item in items}) == len(names)
    assert all(item.name.isprintable() for item in items)
    assert CANARIES[0] not in " ".join(item.id + item.name for item in items)
    assert [item.id for item in items] == [item.id for item in found(quick_path)]


def test_two_items_of_one_name_get_different_files(quick_path: Path) -> None:
    for name in ("a/one", "b/one", "c/ONE"):
        repository(quick_path / name, {})

    assert len({item.id.lower() for item in found(quick_path)}) == 3


def test_priority_follows_size_and_time(quick_path: Path) -> None:
    for name, files, age in (
        ("big-new", 100, 10),
        ("big-old", 100, 100),
        ("small-new", 5, 10),
        ("ancient", 100, 2000),
        ("empty", 0, 0),
    ):
        one = repository(quick_path / name, {f"{number}.py": "" for number in range(files)})
        moment = (NOW - timedelta(days=age)).timestamp()
        for path in one.iterdir():
            os.utime(path, (moment, moment))

    assert {item.id: item.priority for item in found(quick_path)} == {
        "big-new": "P0",
        "big-old": "P1",
        "small-new": "P2",
        "ancient": "P3",
        "empty": "P3",
    }


def test_packages_get_their_priority_by_size(quick_path: Path) -> None:
    for name, files in (("huge", 300), ("large", 100), ("small", 20), ("tiny", 1)):
        package(quick_path, name, {f"{name}/{number}.py": "" for number in range(files)})

    assert {item.id: item.priority for item in found(quick_path)} == {
        "huge": "P0",
        "large": "P1",
        "small": "P2",
        "tiny": "P3",
    }


def test_the_category_follows_what_lies_in_the_folder(quick_path: Path) -> None:
    for name, file in (
        ("a", "Dockerfile"),
        ("b", "main.tf"),
        ("c", "mkdocs.yml"),
        ("d", "go.mod"),
        ("e", "x"),
    ):
        repository(quick_path / name, {file: ""})
    info = package(quick_path, "f", {"f.py": ""})
    (info / "entry_points.txt").write_text("[console_scripts]\nf = f:main\n")
    os.mkfifo(package(quick_path, "g", {"g.py": ""}) / "entry_points.txt")

    assert {item.id: item.category for item in found(quick_path)} == {
        "a": "product",
        "b": "platform",
        "c": "documentation",
        "d": "library",
        "e": "other",
        "f": "tool",
        "g": "library",
    }


def bare(folder: Path) -> Path:
    """As `git init --bare` makes it."""
    tree(folder, {"HEAD": "ref: refs/heads/main\n", "config": "[core]\n\tbare = true\n"})
    for name in ("objects", "refs"):
        (folder / name).mkdir()
    # What is in it is no item of its own.
    tree(folder / "hooks", {"setup.py": ""})
    return folder


def test_bare_repositories_are_told_and_are_no_items(quick_path: Path) -> None:
    repository(quick_path / "one", {})
    (quick_path / "mirrors").mkdir()
    shop = bare(quick_path / "mirrors" / "shop.git")
    skipped: list[Path] = []

    items = find_items(quick_path, artifacts=quick_path, now=NOW, on_bare=skipped.append)

    assert [item.id for item in items] == ["one"]
    assert skipped == [shop]


@pytest.mark.parametrize("where", ["shop.git", "."])
def test_a_folder_with_nothing_but_bare_repositories_says_how_to_analyse_them(
    quick_path: Path, where: str
) -> None:
    shop = bare(quick_path / "shop.git")

    with pytest.raises(BadInput) as refused:
        find_items(quick_path / where if where == "." else shop, artifacts=quick_path, now=NOW)

    assert "1 bare repository" in str(refused.value)
    assert f"git clone {shop}" in str(refused.value)


@pytest.mark.parametrize("folder", ["empty", "missing", "file"])
def test_a_folder_without_items_is_refused(quick_path: Path, folder: str) -> None:
    (quick_path / "empty").mkdir()
    (quick_path / "file").touch()

    with pytest.raises(BadInput, match="folder"):
        find_items(quick_path / folder, artifacts=quick_path, now=NOW)
