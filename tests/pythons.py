"""The fast tests under every supported Python, and with the oldest dependencies that pyproject allows.

`make test-pythons` and `make test-lowest` call it. Each Python has a virtual environment of its own, which
the Makefile sets up as it sets up `.venv`.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from tests.architecture.source import ROOT

Version = tuple[int, ...]

_INTERPRETER = re.compile(r"python3\.(\d+)")
_RUNS_PYTHON = re.compile(r"Programming Language :: Python :: 3\.(\d+)")
# Prints nothing for a prerelease: packages have no wheels for it yet.
_ASK = "import sys; v = sys.version_info; print(*v[:3] if v.releaselevel == 'final' else ())"
LOWEST = ROOT / ".venv-lowest"


class Project(msgspec.Struct, frozen=True, rename="kebab"):
    """What pyproject.toml says about the distribution."""

    classifiers: list[str]
    dependencies: list[str]
    optional_dependencies: dict[str, list[str]]

    @property
    def floors(self) -> list[str]:
        """Constraints that allow only the oldest release of each dependency of ours."""
        extras = (more for name, more in self.optional_dependencies.items() if name != "dev")
        return [floor(one) for one in itertools.chain(self.dependencies, *extras)]


def read_project() -> Project:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return msgspec.convert(table["project"], Project)


def floor(requirement: str) -> str:
    """`uvicorn>=0.50` becomes `uvicorn==0.50`."""
    return re.sub(r"\[.*?\]", "", requirement).split(",")[0].replace(">=", "==")


def supported(classifiers: Iterable[str]) -> list[Version]:
    """The minor versions that pyproject promises."""
    found = (_RUNS_PYTHON.fullmatch(line) for line in classifiers)
    return sorted((3, int(match[1])) for match in found if match)


def directories(environment: Mapping[str, str]) -> list[Path]:
    """Where an interpreter may be: the search path, then what pyenv and uv have installed."""
    home = Path(environment.get("HOME", "/"))
    pyenv = Path(environment.get("PYENV_ROOT", home / ".pyenv"))
    uv = Path(environment.get("UV_PYTHON_INSTALL_DIR", home / ".local/share/uv/python"))
    on_path = [Path(part) for part in environment.get("PATH", "").split(os.pathsep) if part]
    return [*on_path, *sorted(pyenv.glob("versions/*/bin")), *sorted(uv.glob("*/bin"))]


def interpreters(places: Iterable[Path]) -> dict[Version, Path]:
    """For each minor version the newest interpreter that starts; a pyenv shim often does not."""
    newest: dict[Version, tuple[Version, Path]] = {}
    for place in places:
        for file in sorted(place.glob("python3.*")):
            if _INTERPRETER.fullmatch(file.name) is None:
                continue
            asked = subprocess.run([file, "-c", _ASK], capture_output=True, text=True, check=False)
            version = tuple(int(part) for part in asked.stdout.split())
            known = newest.get(version[:2])
            if asked.returncode == 0 and version and (known is None or known[0] < version):
                newest[version[:2]] = (version, file)
    return {minor: file for minor, (_, file) in sorted(newest.items())}


def shown(version: Version) -> str:
    return ".".join(map(str, version))


def make(*arguments: str) -> int:
    return subprocess.run(["make", "--no-print-directory", *arguments], cwd=ROOT, check=False).returncode


def run_everywhere() -> int:
    """Under every Python that pyproject names, and each newer one that is here."""
    promised = supported(read_project().classifiers)
    found = interpreters(directories(os.environ))
    wanted = sorted({*promised, *(version for version in found if version > promised[-1])})
    missing = [version for version in wanted if version not in found]
    failed: list[Version] = []
    for version in wanted:
        if version in missing:
            continue
        print(f"Python {shown(version)}: {found[version]}", flush=True)
        if make("test-fast", f"VENV=.venv-{shown(version)}", f"PYTHON={found[version]}"):
            failed.append(version)
    print(*summary(wanted, missing, failed), sep="\n")
    return 1 if failed or missing == wanted else 0


def summary(wanted: Sequence[Version], missing: Sequence[Version], failed: Sequence[Version]) -> list[str]:
    """One line for each Python; the reader of a long log finds all of them at its end."""
    words = dict.fromkeys(wanted, "passed")
    words |= dict.fromkeys(failed, "FAILED")
    words |= dict.fromkeys(missing, "not found on PATH, in pyenv or in uv, so not tested")
    return [f"Python {shown(version)}: {word}" for version, word in words.items()]


def run_lowest() -> int:
    """With the oldest releases, under the oldest Python; the test tools are those of the lock file."""
    project = read_project()
    oldest = supported(project.classifiers)[0]
    python = interpreters(directories(os.environ)).get(oldest)
    if python is None:
        print(f"Python {shown(oldest)} was not found on PATH, in pyenv or in uv: install it and try again")
        return 1
    uv = Path(sys.executable).with_name("uv")
    shutil.rmtree(LOWEST, ignore_errors=True)
    run(python, "-m", "venv", LOWEST)
    constraints, lock = LOWEST / "constraints.txt", LOWEST / "requirements.txt"
    constraints.write_text("".join(f"{one}\n" for one in project.floors), encoding="utf-8")
    # uv keeps the versions that it finds in the file that it writes, unless a constraint forbids them.
    shutil.copy(ROOT / "requirements" / "dev.txt", lock)
    into = ("--quiet", "--python", LOWEST / "bin" / "python")
    run(uv, "pip", "compile", *into, "--all-extras", "-c", constraints, "-o", lock, "pyproject.toml")
    run(uv, "pip", "sync", *into, lock)
    run(uv, "pip", "install", *into, "--no-deps", "--no-build-isolation", "--editable", ".")
    # Newer than what the Makefile sets an environment up from: it leaves this one alone.
    (LOWEST / ".is-set-up").touch()
    # The doors depend most on others' code, and their tests are slow ones.
    return make("test-fast", f"VENV={LOWEST.name}") or make(
        "test-slow", f"VENV={LOWEST.name}", "PYTEST=tests/api"
    )


def run(*command: str | Path) -> None:
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    sys.exit(run_lowest() if sys.argv[1:] == ["lowest"] else run_everywhere())
