"""Real git repositories, for any user and whatever is configured."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

PERSON = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
}


def git(repo: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=repo,
        env={**os.environ, **PERSON},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def new_repository(path: Path) -> Path:
    """An empty working tree on the branch main, with an author of its own and without hooks."""
    path.mkdir(parents=True)
    git(path, "init", "--quiet", "--initial-branch=main", "--template=")
    with (path / ".git" / "config").open("a") as config:
        config.write("[user]\n\tname = Ada\n\temail = ada@example.org\n")
    return path
