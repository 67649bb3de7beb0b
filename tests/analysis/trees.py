"""Makes real trees for the analysis: files, git repositories and installed packages."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path


def tree(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """A folder with these files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def repository(folder: Path, files: Mapping[str, str | bytes], *, at: datetime | None = None) -> Path:
    """A git repository with these files in one commit; without any, one without a commit."""
    tree(folder, files)
    git(folder, "init", "--quiet", "--initial-branch=main")
    if files:
        git(folder, "add", "--all")
        when = {} if at is None else {"GIT_COMMITTER_DATE": at.isoformat(), "GIT_AUTHOR_DATE": at.isoformat()}
        git(folder, "commit", "--quiet", "--message=one", **when)
    return folder


def git(folder: Path, *arguments: str, **environ: str) -> None:
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, env=os.environ | environ, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def package(
    site: Path, name: str, files: Mapping[str, str | bytes], *, needs: tuple[str, ...] = (), more: str = ""
) -> Path:
    """A package as pip installs it; returns its .dist-info. `more` are further lines of its RECORD."""
    tree(site, files)
    requires = "".join(f"Requires-Dist: {one}\n" for one in needs)
    record = "".join(f"{path},,\n" for path in files)
    info = site / f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}\nRequires-Dist: not-a-header\n"
    tree(info, {"METADATA": metadata, "RECORD": record + more})
    return info
