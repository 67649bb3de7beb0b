"""Tests of OpenClaw are skipped where npm cannot be reached, and fail where it can and the install fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.openclaw import packages
from tests.openclaw.packages import NpmAway


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache" / "openclaw-1"


def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "npm"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")


def test_without_a_registry_npm_is_away(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm(tmp_path, monkeypatch, "echo getaddrinfo ENOTFOUND >&2; exit 1")

    with pytest.raises(NpmAway, match="cannot be reached: getaddrinfo ENOTFOUND"):
        packages._install(place)


def test_without_npm_it_is_away(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(NpmAway, match="not installed"):
        packages._install(place)


def test_an_install_that_fails_although_npm_is_reached_is_a_failure(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm(tmp_path, monkeypatch, 'test "$1" = view && exit 0; echo EINTEGRITY >&2; exit 1')

    with pytest.raises(AssertionError, match="EINTEGRITY"):
        packages._install(place)
    assert list(place.parent.iterdir()) == []


def test_a_complete_install_is_moved_to_its_place(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm(tmp_path, monkeypatch, 'test "$1" = ci && mkdir node_modules')

    packages._install(place)

    assert (place / "node_modules").is_dir()
