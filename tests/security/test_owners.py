"""What another user can write, own or exchange is not obeyed: settings, tokens, secrets, keys and homes."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import tempfile
import tomllib  # noqa: F401 - the child that is another user may be unable to import it
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import trust
from holdfast.config.files import load
from holdfast.config.sections import ChannelSettings
from holdfast.config.token import read_secret, read_token
from holdfast.core.errors import KeyProblem, SettingsError, StoreUnavailable
from holdfast.store.locks import HomeLock, holder_of
from holdfast.store.outer_keys import FileKey, write_key_file
from tests.doors.calls import PROGRAM, Call, environment

STRANGER = 12345
OTHER = 12346
SETTINGS = "[agents.spy]\ncommand = ['/bin/echo', 'obeyed']\n"

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    return path


def written(path: Path, text: str = SETTINGS, *, mode: int = 0o600) -> Path:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def called(home: Path, *arguments: str) -> Call:
    """The program in a process of its own."""
    done = subprocess.run(
        [*PROGRAM, *arguments],
        env=environment(home),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Call(status=done.returncode, out=done.stdout, err=done.stderr)


def refusal(home: Path) -> str:
    with pytest.raises(SettingsError) as refused:
        load(home, {})
    return str(refused.value)


# --- settings


@root_only
@pytest.mark.parametrize("name", ["holdfast.toml", "holdfast.yaml", "config/agents.yaml", "config"])
def test_settings_that_belong_to_another_user_are_not_obeyed(home: Path, name: str) -> None:
    path = home / name
    if name.startswith("config"):
        written(home / "config" / "agents.yaml", "spy: {command: [/bin/echo, obeyed]}")
    else:
        written(path, "agents: {spy: {command: [/bin/echo]}}" if path.suffix == ".yaml" else SETTINGS)
    os.chown(path, STRANGER, -1)

    problem = refusal(home)

    assert f"{path} belongs to another user ({STRANGER}), not to root: chown root {path}" in problem


@root_only
@pytest.mark.parametrize("command", [("config", "check"), ("status",), ("up", "--port", "0")])
def test_every_command_refuses_the_settings_of_another_user_with_the_remedy(
    home: Path, command: tuple[str, ...]
) -> None:
    path = written(home / "holdfast.toml")
    os.chown(path, STRANGER, -1)

    call = called(home, *command)

    assert call.status in (2, 78)
    assert f"belongs to another user ({STRANGER})" in call.err
    assert f"chown root {path}" in call.err


@root_only
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(("owner", "is_obeyed"), [(STRANGER, True), (0, True), (OTHER, False)])
def test_a_user_obeys_settings_of_its_own_and_of_root_only(owner: int, *, is_obeyed: bool) -> None:
    "imported before the child cannot do so".encode("utf-8-sig")
    with tempfile.TemporaryDirectory(prefix="holdfast-owners-") as place:
        Path(place).chmod(0o755)
        home = Path(place) / "home"
        home.mkdir(mode=0o700)
        path = written(home / "holdfast.toml", mode=0o644)
        os.chown(home, STRANGER, STRANGER)
        os.chown(path, owner, owner)

        said = said_as(STRANGER, lambda: " ".join(load(home, {}).config.agents))

    assert (said == "spy") == is_obeyed
    assert is_obeyed or f"belongs to another user ({OTHER}), not to {STRANGER} or root" in said


def said_as(user: int, act: Callable[[], str]) -> str:
    """What it says in a forked child that is another user. Nothing can be imported there any more."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os.write(theirs, act().encode())
        except Exception as error:  # noqa: BLE001 - the test reads it
            os.write(theirs, f"{error}".encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as answers:
        said = answers.read()
    os.waitpid(child, 0)
    return said


@root_only
def test_settings_below_a_directory_of_another_user_are_not_obeyed(tmp_path: Path) -> None:
    """Its owner can put another home in the place of ours."""
    theirs = tmp_path / "theirs"
    home = theirs / "home"
    home.mkdir(parents=True, mode=0o700)
    written(home / "holdfast.toml")
    os.chown(theirs, STRANGER, -1)

    problem = refusal(home)

    assert f"{theirs} belongs to another user ({STRANGER})" in problem
    assert "is below it" in problem


@pytest.mark.parametrize(("mode", "is_obeyed"), [(0o777, False), (0o1777, True), (0o755, True)])
def test_a_directory_above_the_home_that_anyone_can_write_must_be_sticky(
    tmp_path: Path, mode: int, *, is_obeyed: bool
) -> None:
    above = tmp_path / "above"
    home = above / "home"
    home.mkdir(parents=True, mode=0o700)
    written(home / "holdfast.toml")
    above.chmod(mode)

    if is_obeyed:
        assert list(load(home, {}).config.agents) == ["spy"]
    else:
        assert f"{above} can be written by any user (mode 0777): chmod go-w {above}" in refusal(home)


def test_a_sticky_home_is_refused_because_anyone_can_add_a_document_to_it(home: Path) -> None:
    home.chmod(0o1777)

    assert trust.why_not_trusted(home) == (
        f"{home} can be written by any user (mode 1777): chmod go-w {home}"
    )


@root_only
def test_a_link_of_another_user_is_not_followed(tmp_path: Path, home: Path) -> None:
    elsewhere = written(tmp_path / "elsewhere.toml")
    (home / "holdfast.toml").symlink_to(elsewhere)
    os.lchown(home / "holdfast.toml", STRANGER, -1)

    assert f"chown -h root {home / 'holdfast.toml'}" in refusal(home)


@root_only
def test_a_link_of_ours_to_a_place_of_another_user_is_not_followed(tmp_path: Path, home: Path) -> None:
    theirs = tmp_path / "theirs"
    document = written(theirs / "holdfast.toml")
    os.chown(theirs, STRANGER, -1)
    (home / "holdfast.toml").symlink_to(document)

    assert f"{theirs} belongs to another user" in refusal(home)


def test_a_link_of_ours_to_a_place_of_ours_is_followed(tmp_path: Path, home: Path) -> None:
    """As configuration managers and mounted volumes have it."""
    document = written(tmp_path / "etc" / "version-2" / "holdfast.toml")
    (tmp_path / "etc" / "now").symlink_to("version-2")
    (home / "holdfast.toml").symlink_to(tmp_path / "etc" / "now" / document.name)

    assert list(load(home, {}).config.agents) == ["spy"]


@root_only
def test_a_home_behind_a_link_of_another_user_is_refused(tmp_path: Path, home: Path) -> None:
    """It may lead to a directory of ours that was never meant to be a home."""
    written(home / "holdfast.toml")
    link = tmp_path / "link"
    link.symlink_to(home)
    os.lchown(link, STRANGER, -1)

    call = called(link, "config", "check")

    assert call.status == 2
    assert f"{link} belongs to another user ({STRANGER})" in call.err


def test_a_loop_of_links_is_refused(home: Path) -> None:
    (home / "holdfast.toml").symlink_to(home / "holdfast.toml")

    with pytest.raises(OSError, match="too many links"):
        trust.why_not_trusted(home / "holdfast.toml")


@pytest.mark.parametrize(("members", "is_obeyed"), [([], True), (["root"], True), (["mallory"], False)])
def test_a_group_of_our_own_name_may_write_only_if_no_other_user_is_in_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, members: list[str], *, is_obeyed: bool
) -> None:
    us = pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group((us, "x", gid, members)))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: pwd.struct_passwd((us, "x", uid, uid, "", "", "")))
    members[:] = [us if one == "root" else one for one in members]
    path = written(home / "holdfast.toml", mode=0o664)

    assert (trust.why_not_trusted(path) is None) == is_obeyed


# --- tokens, secrets and keys


def read_hook(home: Path) -> str:
    settings = ChannelSettings(kind="webhook", secret_file="secret", agent="spy")
    return read_secret("hook", settings, home, {})


Reads = Callable[[Path], object]
SECRETS: list[tuple[str, Reads]] = [
    ("token", lambda home: read_token(home, {}, may_make=False)),
    ("secret", read_hook),
    ("key", lambda home: FileKey(home / "key").load()),
]


def a_secret(home: Path, name: str) -> Path:
    if name == "key":
        write_key_file(home / name, b"k" * 32)
        return home / name
    return written(home / name, "s3cr3t" * 10)


@root_only
@pytest.mark.parametrize(("name", "read"), SECRETS)
def test_a_secret_of_another_user_is_not_used(home: Path, name: str, read: Reads) -> None:
    path = a_secret(home, name)
    os.chown(path, STRANGER, -1)

    with pytest.raises((SettingsError, KeyProblem), match=f"chown root {path}"):
        read(home)


@root_only
@pytest.mark.parametrize(("name", "read"), SECRETS)
def test_a_secret_below_a_directory_of_another_user_is_not_used(home: Path, name: str, read: Reads) -> None:
    a_secret(home, name)
    os.chown(home, STRANGER, -1)

    with pytest.raises((SettingsError, KeyProblem), match=f"chown root {home}"):
        read(home)


@pytest.mark.parametrize(("name", "read"), SECRETS)
def test_a_secret_below_a_directory_that_anyone_can_write_is_not_used(
    home: Path, name: str, read: Reads
) -> None:
    a_secret(home, name)
    home.chmod(0o777)

    with pytest.raises((SettingsError, KeyProblem), match=f"chmod go-w {home}"):
        read(home)


# --- the home and its locks


@root_only
def test_no_writer_takes_the_home_of_another_user(home: Path) -> None:
    os.chown(home, STRANGER, -1)

    with pytest.raises(StoreUnavailable, match=f"chown root {home}"):
        HomeLock.take(home, role="cli")


@root_only
@pytest.mark.parametrize("command", [("up", "--port", "0"), ("store", "migrate")])
def test_no_command_that_writes_does_so_in_the_home_of_another_user(
    home: Path, command: tuple[str, ...]
) -> None:
    os.chown(home, STRANGER, -1)

    call = called(home, *command)

    assert call.status in (1, 2, 78)
    assert f"chown root {home}" in call.err
    assert list(home.iterdir()) == []


@root_only
def test_doctor_says_that_the_home_of_another_user_is_not_used(home: Path) -> None:
    os.chown(home, STRANGER, -1)

    call = called(home, "doctor", "--json")

    [found] = [one for one in call.json["checks"] if one["name"] == "home"]
    assert call.status == 1
    assert f"belongs to another user ({STRANGER})" in found["message"]
    assert found["remedy"].startswith(f"chown root {home}")


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path, home: Path) -> None:
    """It would be cut to nothing and written over."""
    victim = written(tmp_path / "victim", "precious")
    (home / "gateway.lock").symlink_to(victim)

    with pytest.raises(StoreUnavailable, match=r"gateway\.lock: it is a link; remove it"):
        HomeLock.take(home, role="cli")
    with pytest.raises(StoreUnavailable, match="it is a link"):
        holder_of(home)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize(
    "command", [("up", "--port", "0", "--host", "nowhere.invalid"), ("store", "migrate")]
)
def test_the_directories_that_are_made_for_a_home_are_for_its_owner_alone(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    home = tmp_path / "state" / "deep" / "home"

    called(home, *command)

    assert {one.stat().st_mode & 0o777 for one in (home, *home.parents[:2])} == {0o700}
