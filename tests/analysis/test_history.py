"""The last commit of repositories: real ones, broken ones, and ones that want git to run something."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.analysis import history
from holdfast.analysis.history import last_commit
from tests.analysis.trees import git, repository, tree

MOMENT = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)


async def test_the_last_commit_is_what_git_says(quick_path: Path) -> None:
    repository(quick_path / "one", {"a.py": "x = 1\n"}, at=MOMENT)

    found = await last_commit(quick_path / "one")

    assert (found.at, found.note) == (MOMENT, None)
    assert found.sha is not None
    assert len(found.sha) == 40


async def test_a_repository_without_commits_says_so(quick_path: Path) -> None:
    found = await last_commit(repository(quick_path / "one", {}))

    assert (found.at, found.note) == (None, "it has no commits")


@pytest.mark.parametrize("broken", ["empty", "file", "head"])
async def test_a_repository_that_git_cannot_read_is_an_answer(quick_path: Path, broken: str) -> None:
    one = repository(quick_path / "one", {"a": ""}, at=MOMENT)
    if broken == "head":
        (one / ".git" / "HEAD").write_bytes(b"\x00\xff\x1b[31m")
    else:
        shutil.rmtree(one / ".git")
        (one / ".git").mkdir() if broken == "empty" else (one / ".git").write_bytes(b"")

    found = await last_commit(one)

    assert found.at is None
    assert found.note is not None
    assert found.note.isprintable()


async def test_a_repository_above_is_not_taken_for_it(quick_path: Path) -> None:
    repository(quick_path, {"one/a.py": ""}, at=MOMENT)

    assert (await last_commit(quick_path / "one")).at is None


async def test_nothing_that_a_repository_names_is_run(quick_path: Path) -> None:
    one = repository(quick_path / "one", {"a": ""}, at=MOMENT)
    ran = quick_path / "ran"
    script = quick_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {ran}\n")
    script.chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "gpg.program", "core.sshCommand", "diff.external"):
        git(one, "config", key, str(script))
    git(one, "config", "log.showSignature", "true")
    hook = one / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    shutil.copy(script, hook)

    found = await last_commit(one)

    assert found.at == MOMENT
    assert not ran.exists()


async def test_a_partial_clone_fetches_nothing(quick_path: Path) -> None:
    one = repository(quick_path / "one", {"a": ""}, at=MOMENT)
    ran = quick_path / "ran"
    git(one, "config", "extensions.partialClone", "origin")
    git(one, "config", "remote.origin.promisor", "true")
    git(one, "config", "remote.origin.url", f"ext::touch {ran}")
    git(one, "config", "protocol.ext.allow", "always")
    for pack in (one / ".git" / "objects").rglob("*"):
        if pack.is_file():
            pack.unlink()

    found = await last_commit(one)

    assert found.at is None
    assert not ran.exists()


async def test_a_file_that_names_a_repository_elsewhere_is_not_followed(quick_path: Path) -> None:
    other = repository(quick_path / "other", {"a": ""}, at=MOMENT)
    one = tree(quick_path / "one", {".git": f"gitdir: {other / '.git'}\n"})

    found = await last_commit(one)

    assert found.at is None
    assert "not followed" in str(found.note)


async def test_a_link_to_a_repository_elsewhere_is_not_followed(quick_path: Path) -> None:
    other = repository(quick_path / "other", {"a": ""}, at=MOMENT)
    one = tree(quick_path / "one", {})
    (one / ".git").symlink_to(other / ".git")

    assert (await last_commit(one)).note == ".git is a link, which is not followed"


async def test_a_working_tree_of_a_repository_is_followed(quick_path: Path) -> None:
    one = repository(quick_path / "one", {"a": ""}, at=MOMENT)
    git(one, "worktree", "add", "--quiet", "-b", "side", str(quick_path / "side"))

    assert (await last_commit(quick_path / "side")).at == MOMENT


async def test_a_git_that_does_not_answer_is_stopped(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = repository(quick_path / "one", {"a": ""}, at=MOMENT)
    (one / ".git" / "config").unlink()
    os.mkfifo(one / ".git" / "config")
    monkeypatch.setattr(history, "GIT_TIMEOUT_S", 0.2)

    found = await last_commit(one)

    assert found.note == "git did not answer within 0.2 s"
