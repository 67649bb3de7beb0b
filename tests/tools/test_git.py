"""Commits and pushes are found again by those who come after a crash."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import BadInput
from holdfast.core.step_declarations import DidNotHappen, Happened, Unknown
from holdfast.tools import GitCommit, GitFailed, GitPush, git_commit, git_push
from holdfast.tools import git as git_tools
from tests.tools.keyed_calls import KEY, call, verify
from tests.tools.repositories import PERSON, git, new_repository


@pytest.fixture(autouse=True)
def _plain_git(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PERSON.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def repo(quick_path: Path) -> Path:
    return new_repository(quick_path / "repo")


def with_remote(repo: Path) -> Path:
    """An empty bare repository that the other one, with a first commit, knows as origin."""
    git(repo, "commit", "--quiet", "--allow-empty", "--message=First")
    bare = repo.parent / "bare.git"
    git(repo, "init", "--quiet", "--bare", "--initial-branch=main", "--template=", str(bare))
    with (repo / ".git" / "config").open("a") as config:
        config.write(f'[remote "origin"]\n\turl = file://{bare}\n')
    return bare


def with_hook(repo: Path, script: str) -> None:
    hook = repo / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\n{script}\n")
    hook.chmod(0o700)


# --- commit


def test_a_commit_carries_its_key_and_is_found_by_it(repo: Path) -> None:
    (repo / "a").write_text("1\n")
    message = "Say hello\n\n# not a comment\n\nSigned-off-by: Ada"
    before = asyncio.run(verify(git_commit, KEY, str(repo), message, all=True))

    result = asyncio.run(call(git_commit, KEY, str(repo), message, all=True))

    git(repo, "checkout", "--quiet", "--orphan", "elsewhere")
    assert before == DidNotHappen()
    assert result == GitCommit(sha=git(repo, "rev-parse", "main"))
    assert git(repo, "log", "-1", "--format=%B", "main") == f"{message}\nHoldfast-Key: {KEY}"
    assert asyncio.run(verify(git_commit, KEY, str(repo), message, all=True)) == Happened(result)
    # One key may be the beginning of another.
    assert asyncio.run(verify(git_commit, KEY[:-1], str(repo), message, all=True)) == DidNotHappen()


def test_without_paths_what_is_staged_is_committed_and_nothing_to_commit_is_a_result(repo: Path) -> None:
    (repo / "staged").touch()
    (repo / "not staged").touch()
    git(repo, "add", "staged")

    first = asyncio.run(call(git_commit, KEY, str(repo), "First"))
    second = asyncio.run(call(git_commit, "other", str(repo), "Second"))

    assert git(repo, "show", "--name-only", "--format=", first.sha) == "staged"
    assert second == GitCommit(sha=first.sha, is_empty=True)


def test_only_the_named_paths_are_committed_and_names_are_no_patterns(repo: Path) -> None:
    for name in ("--all", "*", ":(top)", "other", "staged"):
        (repo / name).touch()
    git(repo, "add", "staged")

    result = asyncio.run(call(git_commit, KEY, str(repo), "Odd", paths=["--all", "*", ":(top)"]))

    assert git(repo, "show", "--name-only", "--format=", result.sha).splitlines() == ["*", "--all", ":(top)"]


def test_a_repository_without_a_commit_has_nothing_to_show_for_it(repo: Path) -> None:
    with pytest.raises(GitFailed, match="nothing to commit, and no commit yet"):
        asyncio.run(call(git_commit, KEY, str(repo), "First", all=True))


def test_what_git_refuses_is_said_in_its_own_words(repo: Path) -> None:
    with_hook(repo, "echo tides are wrong >&2; exit 1")
    (repo / "a").touch()

    with pytest.raises(GitFailed, match=r"git commit failed \(exit status 1\): tides are wrong") as refusal:
        asyncio.run(call(git_commit, KEY, str(repo), "No", all=True, trust_repo=True))

    assert refusal.value.exit_code == 1


def test_a_commit_that_takes_too_long_is_stopped_and_leaves_no_lock(repo: Path) -> None:
    with_hook(repo, "sleep 60")
    (repo / "a").touch()
    git(repo, "add", "a")

    with pytest.raises(TimeoutError, match="took more than"):
        asyncio.run(call(git_commit, KEY, str(repo), "Slow", timeout_s=0.1, trust_repo=True))

    assert asyncio.run(verify(git_commit, KEY, str(repo), "Slow")) == DidNotHappen()


def test_while_git_holds_its_lock_nothing_is_known(monkeypatch: pytest.MonkeyPatch, repo: Path) -> None:
    monkeypatch.setattr(git_tools, "LOCK_PATIENCE_S", 0.01)
    lock = repo / ".git" / "index.lock"
    lock.touch()
    (repo / "a").touch()

    verdict = asyncio.run(verify(git_commit, KEY, str(repo), "x", all=True))
    with pytest.raises(GitFailed, match=r"index\.lock': File exists"):
        asyncio.run(call(git_commit, KEY, str(repo), "x", all=True))

    assert isinstance(verdict, Unknown)
    assert str(lock) in verdict.why


@pytest.mark.parametrize("tool", [git_commit, git_push])
def test_where_there_is_no_repository_nothing_is_known_and_nothing_is_done(tool: Any, repo: Path) -> None:
    """Not even when the directory lies in a repository: that would be another one."""
    (repo / "below").mkdir()

    verdict = asyncio.run(verify(tool, KEY, str(repo / "below"), "main"))
    with pytest.raises(GitFailed, match="not a git repository"):
        asyncio.run(call(tool, KEY, str(repo / "below"), "main"))

    assert isinstance(verdict, Unknown)
    assert "not a git repository" in verdict.why


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"message": ""}, "message"),
        ({"message": "a\0"}, "message"),
        ({"message": None}, "message"),
        ({"message": "x" * 70_000}, "message"),
        ({"message": f"x\n\nholdfast-key: {KEY}"}, "message"),
        ({"paths": []}, "paths"),
        ({"paths": [""]}, "paths"),
        ({"paths": "a"}, "paths"),
        ({"paths": [7]}, "paths"),
        ({"paths": ["a"], "all": True}, "paths"),
        ({"repo": "/no/such/place"}, "repo"),
        ({"repo": ""}, "repo"),
        ({"timeout_s": 0}, "timeout_s"),
    ],
)
def test_no_such_commit(quick_path: Path, arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as refusal:
        asyncio.run(call(git_commit, KEY, **{"repo": str(quick_path), "message": "x", **arguments}))

    assert refusal.value.field == field


# --- push


def test_a_push_is_found_at_the_remote_also_below_newer_commits(repo: Path) -> None:
    bare = with_remote(repo)
    first = git(repo, "rev-parse", "main")
    before = asyncio.run(verify(git_push, KEY, str(repo), "main"))

    result = asyncio.run(call(git_push, KEY, str(repo), "main"))

    pushed = asyncio.run(verify(git_push, KEY, str(repo), "main"))
    # Another clone pushes a commit that is not here, and we make one that is not there.
    newer = git(bare, "commit-tree", "main^{tree}", "-p", "main", "-m", "Theirs")
    git(bare, "update-ref", "refs/heads/main", newer)
    below = asyncio.run(verify(git_push, KEY, str(repo), "main", sha=first))
    git(repo, "commit", "--quiet", "--allow-empty", "--message=Ours")
    not_there = asyncio.run(verify(git_push, KEY, str(repo), "main"))
    assert result == GitPush(sha=first, ref="refs/heads/main", remote="origin")
    assert (before, pushed, below, not_there) == (
        DidNotHappen(),
        Happened(result),
        Happened(result),
        DidNotHappen(),
    )
    with pytest.raises(GitFailed, match="rejected"):
        asyncio.run(call(git_push, KEY, str(repo), "main"))


def test_a_push_of_which_only_the_answer_was_lost_has_happened(
    monkeypatch: pytest.MonkeyPatch, repo: Path
) -> None:
    with_remote(repo)
    run = git_tools.Git.run

    async def lose_the_answer(self: git_tools.Git, command: str, *arguments: str) -> str:
        answer = await run(self, command, *arguments)
        if command == "push":
            raise GitFailed("push", 128, "the remote end hung up unexpectedly")
        return answer

    monkeypatch.setattr(git_tools.Git, "run", lose_the_answer)

    result = asyncio.run(call(git_push, KEY, str(repo), "main"))

    assert asyncio.run(verify(git_push, KEY, str(repo), "main")) == Happened(result)


def test_a_given_commit_is_pushed_and_not_what_the_branch_has_now(repo: Path) -> None:
    bare = with_remote(repo)
    first = git(repo, "rev-parse", "main")
    git(repo, "commit", "--quiet", "--allow-empty", "--message=Second")

    result = asyncio.run(call(git_push, KEY, str(repo), "main", sha=first))

    assert result.sha == git(bare, "rev-parse", "main") == first


def test_it_is_asked_where_the_push_goes(repo: Path) -> None:
    bare = with_remote(repo)
    git(repo, "config", "remote.origin.url", "file:///no/such/place")
    git(repo, "config", "remote.origin.pushurl", f"file://{bare}")

    result = asyncio.run(call(git_push, KEY, str(repo), "main"))

    assert asyncio.run(verify(git_push, KEY, str(repo), "main")) == Happened(result)


def test_a_remote_that_cannot_be_asked_leaves_the_outcome_unknown(repo: Path) -> None:
    bare = with_remote(repo)
    bare.rename(bare.with_name("away"))

    verdict = asyncio.run(verify(git_push, KEY, str(repo), "main"))

    assert isinstance(verdict, Unknown)
    assert "git ls-remote failed" in verdict.why


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"branch": ""}, "branch"),
        ({"branch": "--mirror"}, "branch"),
        ({"branch": "a..b"}, "branch"),
        ({"branch": "main:other"}, "branch"),
        ({"branch": "@{-1}"}, "branch"),
        ({"branch": "no-such-branch"}, "branch"),
        ({"branch": None}, "branch"),
        ({"remote": "--upload-pack=touch /tmp/x"}, "remote"),
        ({"remote": "ext::sh -c true"}, "remote"),
        ({"remote": "file:///tmp"}, "remote"),
        ({"remote": "other"}, "remote"),
        ({"sha": "HEAD"}, "sha"),
        ({"sha": "0" * 40}, "sha"),
        ({"sha": "--all"}, "sha"),
    ],
)
def test_no_such_push(shared_repo: Path, arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as refusal:
        asyncio.run(call(git_push, KEY, **{"repo": str(shared_repo), "branch": "main", **arguments}))

    assert refusal.value.field == field


@pytest.fixture(scope="module")
def shared_repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For tests that change nothing."""
    repo = new_repository(tmp_path_factory.mktemp("shared") / "repo")
    with_remote(repo)
    return repo


def test_a_variable_that_names_another_repository_is_not_heeded(
    monkeypatch: pytest.MonkeyPatch, repo: Path, shared_repo: Path
) -> None:
    monkeypatch.setenv("GIT_DIR", str(shared_repo / ".git"))
    (repo / "a").touch()

    result = asyncio.run(call(git_commit, KEY, str(repo), "Here", all=True))

    monkeypatch.delenv("GIT_DIR")
    assert git(repo, "rev-parse", "HEAD") == result.sha


def test_without_git_it_is_said_that_git_is_missing(monkeypatch: pytest.MonkeyPatch, repo: Path) -> None:
    monkeypatch.setenv("PATH", "/no/such/place")

    with pytest.raises(GitFailed, match="git cannot be run: No such file or directory"):
        asyncio.run(call(git_commit, KEY, str(repo), "Here", all=True))
