"""A real Chromium for the tests of the dashboard: found, installed, and driven by Playwright.

`python -m tests.web.browsers` makes sure that there is one: root takes Debian's package, any other user
takes Playwright's own build. HOLDFAST_BROWSER names the program of another Chromium.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
VARIABLE = "HOLDFAST_BROWSER"
INSTALL_TIMEOUT_S = 600
# Nothing but what the page itself asks for may leave the browser.
FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--font-render-hinting=none",
]
HOW = (
    "The tests of the dashboard need Chromium: install it (as root: apt-get install chromium; else: "
    f".venv/bin/playwright install chromium), or name its program in {VARIABLE}."
)


def find_browser() -> str | None:
    """The program of a Chromium on this machine."""
    named = os.environ.get(VARIABLE)
    if named:
        return named if Path(named).is_file() else None
    found = next((path for name in NAMES if (path := shutil.which(name)) is not None), None)
    return found if found is not None else _own_browser()


def flags() -> list[str]:
    # As root there is no sandbox to be had.
    return [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else FLAGS


def _own_browser() -> str | None:
    """Playwright's own build, if it was downloaded."""
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    found = sorted(cache.glob("chromium-*/chrome-linux*/chrome"))
    return str(found[-1]) if found else None


def _install() -> None:
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (
            ["apt-get", "update", "-qq"],
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"],
        ):
            subprocess.run(
                command, env=environ, check=False, timeout=INSTALL_TIMEOUT_S, stdout=subprocess.DEVNULL
            )
    if find_browser() is None:
        command = [sys.executable, "-m", "playwright", "install", "chromium"]
        subprocess.run(command, check=False, timeout=INSTALL_TIMEOUT_S)


def main() -> int:
    if find_browser() is None:
        print("installing Chromium for the tests of the dashboard", flush=True)
        _install()
    if find_browser() is None:
        print(HOW, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
