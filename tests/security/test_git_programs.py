"""git tools in a repository that an attacker wrote: none of the programs that it names is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.errors import BadInput
from holdfast.tools import GitFailed, git_commit, git_push
from tests.tools.keyed_calls import KEY, call, verify
from tests.tools.repositories import PERSON, git, new_repository

# Each would run at a commit or a push; the value is the attacker's program.
KEYS = (
    *("core.fsmonitor", "core.sshCommand", "core.askPass", "core.editor", "core.pager"),
    *("credential.helper", "credential.https://127.0.0.1.helper", "diff.external", "diff.evil.command"),
    *("diff.evil.textconv", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process"),
    *("gpg.program", "gpg.ssh.program", "gpg.ssh.defaultKeyCommand", "sequence.editor"),
    *("gc.recentObjectsHook", "merge.evil.driver", "core.alternateRefsCommand"),
)
HOOKS = ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-push", "reference-transaction")


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    path = tmp_path / "marks"
    path.mkdir()
    return path


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in PERSON.items():
        monkeypatch.setenv(name, value)
    return new_repository(tmp_path / "repo")


def program(marks: Path, name: str) -> str:
    """An attacker's program: it leaves a mark."""
    path = marks.parent / f"evil-{name.replace('/', '_')}"
    path.write_text(f"#!/bin/sh\ntouch {marks}/{path.name}\ncat\nexit 0\n")
    path.chmod(0o755)
    return str(path)


def arm(repo: Path, marks: Path) -> None:
    """Everything at once: hooks, config, attributes."""
    for key in KEYS:
        git(repo, "config", key, program(marks, key))
    git(repo, "config", "protocol.ext.allow", "always")
    (repo / ".git" / "hooks").mkdir(exist_ok=True)
    for hook in HOOKS:
        path = repo / ".git" / "hooks" / hook
        path.write_text(Path(program(marks, f"hook-{hook}")).read_text())
        path.chmod(0o755)
    (repo / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")


def ran(marks: Path) -> list[str]:
    return sorted(one.name for one in marks.iterdir())


def with_remote(repo: Path, url: str | None = None) -> Path:
    bare = repo.parent / "bare.git"
    git(repo, "init", "--quiet", "--bare", "--initial-branch=main", "--template=", str(bare))
    git(repo, "remote", "add", "origin", url or f"file://{bare}")
    return bare


async def test_a_commit_starts_no_program_of_the_repository(repo: Path, marks: Path) -> None:
    arm(repo, marks)
    git(repo, "config", "commit.gpgSign", "false")
    (repo / "a").write_text("plain\n")

    result = await call(git_commit, KEY, str(repo), "Say hello", all=True)
    await verify(git_commit, KEY, str(repo), "Say hello", all=True)
    (repo / "a").write_text("plainer\n")
    await call(git_commit, "another", str(repo), "Say more", paths=["a"])

    assert ran(marks) == []
    assert git(repo, "cat-file", "blob", f"{result.sha}:a") == "plain"


async def test_a_push_starts_no_program_of_the_repository(repo: Path, marks: Path) -> None:
    bare = with_remote(repo)
    (repo / "a").write_text("plain\n")
    await call(git_commit, KEY, str(repo), "First", all=True)
    arm(repo, marks)

    pushed = await call(git_push, KEY, str(repo), "main")
    await verify(git_push, KEY, str(repo), "main")

    assert git(bare, "rev-parse", "main") == pushed.sha
    assert ran(marks) == []


@pytest.mark.parametrize("scheme", ["ssh", "https", "ext"])
async def test_no_address_of_a_remote_starts_a_program(repo: Path, marks: Path, scheme: str) -> None:
    evil = program(marks, "transport")
    urls = {"ssh": "ssh://127.0.0.1:1/x", "https": "https://127.0.0.1:1/x", "ext": f"ext::{evil}"}
    with_remote(repo, urls[scheme])
    (repo / "a").touch()
    await call(git_commit, KEY, str(repo), "First", all=True)
    arm(repo, marks)

    with pytest.raises(GitFailed):
        await call(git_push, KEY, str(repo), "main", timeout_s=30)

    assert ran(marks) == []


async def test_a_signature_is_not_made_by_a_program_of_the_repository(repo: Path, marks: Path) -> None:
    arm(repo, marks)
    git(repo, "config", "commit.gpgSign", "true")
    git(repo, "config", "user.signingKey", "nobody")
    (repo / "a").touch()

    with pytest.raises(GitFailed):  # no such key, or no gpg at all
        await call(git_commit, KEY, str(repo), "Signed", all=True)

    assert ran(marks) == []


async def test_a_filter_that_is_required_is_an_error_and_not_a_commit_without_it(
    repo: Path, marks: Path
) -> None:
    arm(repo, marks)
    git(repo, "config", "filter.evil.required", "true")
    (repo / "a").touch()

    with pytest.raises(GitFailed, match="filter"):
        await call(git_commit, KEY, str(repo), "Large", all=True)

    assert ran(marks) == []


@pytest.mark.parametrize("way", ["config", "included", "worktree"])
async def test_a_program_for_trailers_is_refused_with_the_remedy(repo: Path, marks: Path, way: str) -> None:
    evil = program(marks, "trailer")
    if way == "config":
        git(repo, "config", "trailer.evil.command", evil)
    elif way == "included":
        (repo / "more").write_text(f'[trailer "evil"]\n\tcommand = {evil}\n')
        git(repo, "config", "include.path", "../more")
    else:
        git(repo, "config", "extensions.worktreeConfig", "true")
        git(repo, "config", "--worktree", "trailer.evil.command", evil)
    (repo / "a").touch()

    with pytest.raises(GitFailed, match=r"git config --unset-all trailer\.evil\.command"):
        await call(git_commit, KEY, str(repo), "Trailed", all=True)

    assert ran(marks) == []


@pytest.mark.parametrize("key", ["remote.origin.receivepack", "remote.origin.uploadpack", "core.gitproxy"])
async def test_a_program_of_a_remote_is_refused_with_the_remedy(repo: Path, marks: Path, key: str) -> None:
    with_remote(repo)
    git(repo, "config", key, program(marks, key))
    git(repo, "commit", "--quiet", "--allow-empty", "--message=First")

    with pytest.raises(GitFailed, match=f"git config --unset-all {key}.*trust_repo=True"):
        await call(git_push, KEY, str(repo), "main")

    assert ran(marks) == []


async def test_programs_of_the_users_own_config_go_on_working(
    repo: Path, marks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As git-lfs installs itself; a repository of the same name for a filter changes nothing."""
    users = tmp_path / "gitconfig"
    users.write_text('[filter "lower"]\n\tclean = tr A-Z a-z\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(users))
    git(repo, "config", "filter.lower.clean", program(marks, "lower"))
    (repo / ".gitattributes").write_text("a filter=lower\n")
    (repo / "a").write_text("LOUD\n")

    result = await call(git_commit, KEY, str(repo), "Quietly", all=True)

    assert git(repo, "cat-file", "blob", f"{result.sha}:a") == "loud"
    assert ran(marks) == []


async def test_with_trust_in_the_repository_its_hooks_run(repo: Path, marks: Path) -> None:
    (repo / ".git" / "hooks").mkdir()
    (repo / ".git" / "hooks" / "post-commit").symlink_to(program(marks, "hook"))
    (repo / "a").touch()

    await call(git_commit, KEY, str(repo), "Hooked", all=True, trust_repo=True)

    assert ran(marks) == ["evil-hook"]


async def test_the_lock_is_not_made_through_a_link(repo: Path, tmp_path: Path) -> None:
    (repo / ".git" / "holdfast.lock").symlink_to(tmp_path / "made")
    (repo / "a").touch()

    with pytest.raises(GitFailed, match=r"holdfast\.lock cannot be opened"):
        await call(git_commit, KEY, str(repo), "x", all=True)

    assert not (tmp_path / "made").exists()


async def test_trust_is_true_or_false(repo: Path) -> None:
    with pytest.raises(BadInput, match="trust_repo"):
        await call(git_commit, KEY, str(repo), "x", trust_repo="no")  # type: ignore[arg-type]
