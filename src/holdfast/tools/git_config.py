"""Settings that keep git from running hooks, and programs that the repository's own config names."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

# The author of the repository wrote these scopes; all others belong to the user or to the machine.
_ITS_OWN = frozenset({"local", "worktree"})
# Programs that git would run, and the value that replaces each if the user has set none.
_PROGRAMS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.DOTALL), instead)
    for pattern, instead in (
        (r"core\.sshcommand", "ssh"),
        (r"core\.(askpass|editor|pager|alternaterefscommand)", ""),
        (r"(sequence\.editor|diff\.external|diff\..*\.(command|textconv)|merge\..*\.driver)", ""),
        (r"filter\..*\.(clean|smudge|process)", ""),
        (r"gpg(\.openpgp)?\.program", "gpg"),
        (r"gpg\.x509\.program", "gpgsm"),
        (r"gpg\.ssh\.program", "ssh-keygen"),
        (r"gpg\.ssh\.defaultkeycommand", ""),
        (r"uploadpack\.packobjectshook", ""),
        (r"gc\.recentobjectshook", ""),
        (r"push\.recursesubmodules", "no"),
        (r"submodule\.recurse", "false"),
    )
)
# For these, git uses the first of several values, or all of them, so a later value cannot turn them off.
_REFUSED = re.compile(
    r"trailer\..*\.(command|cmd)|remote\..*\.(receivepack|uploadpack|vcs)|core\.gitproxy", re.DOTALL
)
_HELPER = re.compile(r"credential\.(.*\.)?helper", re.DOTALL)
_ALWAYS = (
    # A path that is not a directory has no hooks.
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("protocol.ext.allow", "never"),
    ("diff.ignoreSubmodules", "dirty"),
)
_COUNT = "GIT_CONFIG_COUNT"


class GitConfigEntry(NamedTuple):
    """One value of the configuration of git, and its scope: the file that sets it."""

    scope: str
    key: str
    value: str


def entries(listed: str) -> list[GitConfigEntry]:
    """What `git config --null --show-scope --list` printed."""
    parts = listed.split("\0")
    return [
        GitConfigEntry(scope, *_split(said)) for scope, said in zip(parts[::2], parts[1::2], strict=False)
    ]


def _split(said: str) -> tuple[str, str]:
    key, _, value = said.partition("\n")
    return key, value


def cannot_be_kept_off(found: Sequence[GitConfigEntry]) -> str | None:
    """The key of a program in the repository's own config that cannot be turned off, or None."""
    return next((one.key for one in found if one.scope in _ITS_OWN and _REFUSED.fullmatch(one.key)), None)


def overrides(found: Sequence[GitConfigEntry], environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """The settings that override those of the repository: the user's own, or a harmless value."""
    users = {one.key: one.value for one in found if one.scope not in _ITS_OWN}
    if environ.get("GIT_SSH"):  # git prefers any setting to this variable
        users.setdefault("core.sshcommand", shlex.quote(environ["GIT_SSH"]))
    own = dict.fromkeys(one.key for one in found if one.scope in _ITS_OWN)
    chosen = list(_ALWAYS)
    for key in own:
        for pattern, instead in _PROGRAMS:
            if pattern.fullmatch(key):
                chosen.append((key, users.get(key, instead)))
    if any(_HELPER.fullmatch(key) for key in own):
        # An empty value clears the list; then the user's own helpers are added.
        chosen.append(("credential.helper", ""))
        chosen += [
            (one.key, one.value) for one in found if one.scope not in _ITS_OWN and _HELPER.fullmatch(one.key)
        ]
    return chosen


def environment(chosen: Sequence[tuple[str, str]], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that pass these settings to git, after any that are set already."""
    text = environ.get(_COUNT, "")
    first = int(text) if text.isdecimal() else 0
    given = {_COUNT: str(first + len(chosen))}
    for number, (key, value) in enumerate(chosen, start=first):
        given[f"GIT_CONFIG_KEY_{number}"] = key
        given[f"GIT_CONFIG_VALUE_{number}"] = value
    return given
