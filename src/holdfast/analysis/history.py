"""The last commit of a git repository that is not trusted: nothing that the repository names is run."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import msgspec

from holdfast.core.errors import BadInput
from holdfast.tools.errors import GitFailed
from holdfast.tools.git import Git
from holdfast.views.text import one_line

# A repository with a pipe in place of a file would let git wait for ever.
GIT_TIMEOUT_S = 20.0
_MAX_LINK_BYTES = 4096


class LastCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The commit that HEAD names; without one, why there is none."""

    at: datetime | None = None
    sha: str | None = None
    note: str | None = None


async def last_commit(folder: Path) -> LastCommit:
    """Ask git for the commit. A repository that git cannot read is an answer, not an error."""
    leads_out = _leads_out(folder)
    if leads_out is not None:
        return LastCommit(note=leads_out)
    try:
        sha, moment = await Git(str(folder), GIT_TIMEOUT_S, is_offline=True).last_commit()
        return LastCommit(at=datetime.fromisoformat(moment), sha=sha)
    except TimeoutError:
        return LastCommit(note=f"git did not answer within {GIT_TIMEOUT_S:g} s")
    except GitFailed as error:
        if "unknown revision" in error.stderr or "does not have any commits" in error.stderr:
            return LastCommit(note="it has no commits")
        return LastCommit(note=f"git cannot read it: {one_line(error.stderr, 200)}")
    except (BadInput, ValueError, OSError) as error:
        return LastCommit(note=f"git cannot read it: {one_line(str(error), 200)}")


def _leads_out(folder: Path) -> str | None:
    """Why `.git` is not followed. A link or a file may name any repository of this machine; a working tree is
    followed if that repository names this one, too, as `git worktree add` leaves it."""
    dot_git = folder / ".git"
    if dot_git.is_symlink():
        return ".git is a link, which is not followed"
    if not dot_git.is_file():
        return None
    try:
        named = _first_line(dot_git).removeprefix("gitdir:").strip()
        back = _first_line(folder / named / "gitdir")
        if dot_git.samefile(back):
            return None
    except (OSError, ValueError):
        pass
    return ".git is a file that names another directory, which does not name this one; it is not followed"


def _first_line(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        return os.read(descriptor, _MAX_LINK_BYTES).decode("utf-8", "surrogateescape").splitlines()[0].strip()
    except IndexError as error:
        raise ValueError("empty") from error
    finally:
        os.close(descriptor)
