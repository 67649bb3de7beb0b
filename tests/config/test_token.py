"""The token is made once, with 256 bits, for its owner alone; and it is refused when others could know it."""

from __future__ import annotations

import base64
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.api.tokens import Tokens
from holdfast.config.sections import ChannelSettings, Config, TokenSettings
from holdfast.config.token import read_named_token, read_private, read_secret, read_token
from holdfast.core.errors import SettingsError
from holdfast.core.redaction import redact_text

OWN = "a-token-of-my-own-with-enough-letters-in-it"


def refused(home: Path, environ: dict[str, str] | None = None, *, may_make: bool = True) -> str:
    with pytest.raises(SettingsError) as found:
        read_token(home, environ or {}, may_make=may_make)
    return str(found.value)


def test_a_token_is_made_once_with_256_bits_for_its_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        token = read_token(tmp_path, {})
    finally:
        os.umask(old)

    assert len(base64.urlsafe_b64decode(token.removeprefix("hf_gw_") + "=")) == 32
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    assert read_token(tmp_path, {}) == token
    assert [path.name for path in tmp_path.iterdir()] == ["token"]


def test_two_homes_have_two_tokens(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()

    assert read_token(tmp_path, {}) != read_token(tmp_path / "other", {})


def test_those_who_start_at_once_agree_on_one_token(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from holdfast.config.token import read_token;"
        "sys.stdin.readline(); print(read_token(Path(sys.argv[1]), {}))"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for one in started:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    found = {one.communicate(timeout=60)[0].strip() for one in started}

    assert found == {read_token(tmp_path, {})}
    assert [path.name for path in tmp_path.iterdir()] == ["token"]


def test_the_variable_wins_and_nothing_is_written(tmp_path: Path) -> None:
    assert read_token(tmp_path, {"HOLDFAST_TOKEN": OWN}) == OWN
    assert list(tmp_path.iterdir()) == []


def test_an_empty_variable_says_nothing(tmp_path: Path) -> None:
    assert read_token(tmp_path, {"HOLDFAST_TOKEN": ""}).startswith("hf_gw_")


@pytest.mark.parametrize("token", ["hunter2", "hunter2 " * 8, "hunter2\n" * 8, "hunter2é" * 8, "x" * 513])
def test_a_token_that_could_be_guessed_or_not_be_sent_is_refused_and_not_shown(
    tmp_path: Path, token: str
) -> None:
    says = refused(tmp_path, {"HOLDFAST_TOKEN": token})

    assert says.startswith("HOLDFAST_TOKEN is not a token of 32 to 512 letters")
    assert "hunter2" not in says


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601, 0o644])
def test_a_token_that_others_may_have_read_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    token = read_token(tmp_path, {})
    (tmp_path / "token").chmod(mode)

    says = refused(tmp_path)

    assert f"is open to others (mode {mode:04o})" in says
    assert f"chmod 600 {tmp_path / 'token'}" in says
    assert token not in says


def test_what_is_no_token_of_ours_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    for content in ("", "short", "x" * 5000):
        token.write_text(content)
        token.chmod(0o600)
        assert str(token) in refused(tmp_path)
    token.unlink()
    token.mkdir()
    assert "is not a regular file" in refused(tmp_path)
    token.rmdir()
    os.mkfifo(token, 0o600)
    assert "is not a regular file" in refused(tmp_path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(OWN)
    elsewhere.chmod(0o600)
    (tmp_path / "token").symlink_to(elsewhere)

    assert "it is a link" in refused(tmp_path)

    (tmp_path / "token").unlink()
    (tmp_path / "token").symlink_to(tmp_path / "nowhere")
    assert "it is a link" in refused(tmp_path)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_token_of_another_user_is_refused(tmp_path: Path) -> None:
    read_token(tmp_path, {})
    os.chown(tmp_path / "token", 12345, -1)

    assert "belongs to another user (12345)" in refused(tmp_path)


def test_a_user_that_may_not_make_one_is_told_who_does(tmp_path: Path) -> None:
    assert "start the gateway, which creates it" in refused(tmp_path, may_make=False)
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_is_not_there_says_so(tmp_path: Path) -> None:
    assert "cannot be written, no such file or directory" in refused(tmp_path / "nowhere")


def test_a_token_is_redacted_wherever_it_stands(tmp_path: Path) -> None:
    token = read_token(tmp_path, {})

    assert token not in redact_text(f"they sent {token} to us")


# --- the secrets of channels

SECRET = "correct horse battery staple"


def test_a_channels_secret_comes_from_its_variable(tmp_path: Path) -> None:
    channel = ChannelSettings(kind="webhook", secret_env="HOOK", agent="a")

    assert read_secret("hook", channel, tmp_path, {"HOOK": SECRET}) == SECRET
    for environ, why in (({}, "is empty"), ({"HOOK": "hunter2"}, "has fewer than 16 characters")):
        with pytest.raises(SettingsError, match=why) as found:
            read_secret("hook", channel, tmp_path, environ)
        assert str(found.value).startswith("channels.hook.secret_env is 'HOOK'")
        assert "hunter2" not in str(found.value)


@pytest.mark.parametrize("is_absolute", [False, True])
def test_a_channels_secret_comes_from_its_file(tmp_path: Path, *, is_absolute: bool) -> None:
    file = tmp_path / "hook.secret"
    name = str(file) if is_absolute else "hook.secret"
    channel = ChannelSettings(kind="webhook", secret_file=name, agent="a")
    with pytest.raises(SettingsError, match="is empty"):
        read_secret("hook", channel, tmp_path, {})
    file.write_text(f"{SECRET}\n")
    file.chmod(0o644)
    with pytest.raises(SettingsError, match="is open to others"):
        read_secret("hook", channel, tmp_path, {})
    file.chmod(0o400)

    assert read_secret("hook", channel, tmp_path, {}) == SECRET


def test_a_channel_without_a_secret_says_so(tmp_path: Path) -> None:
    channel = ChannelSettings(kind="apprise", urls=["json://x"])

    with pytest.raises(SettingsError, match="neither secret_env nor secret_file"):
        read_secret("mail", channel, tmp_path, {})


def test_a_file_of_a_user_who_does_not_exist_is_refused(tmp_path: Path) -> None:
    channel = ChannelSettings(kind="webhook", secret_file="~nobodyhere/hook.secret", agent="a")

    with pytest.raises(SettingsError, match="no such user"):
        read_secret("hook", channel, tmp_path, {})


def test_a_file_that_is_not_there_is_for_the_caller_to_judge(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_private(tmp_path / "nothing")


# --- more tokens


def test_a_token_of_the_settings_comes_from_its_variable_or_its_file(tmp_path: Path) -> None:
    (tmp_path / "board").write_text(f"{OWN}\n")
    (tmp_path / "board").chmod(0o600)

    from_file = read_named_token("board", TokenSettings(token_file="board"), tmp_path, {})
    from_variable = read_named_token("board", TokenSettings(token_env="BOARD"), tmp_path, {"BOARD": OWN})

    assert (from_file, from_variable) == (OWN, OWN)
    assert OWN not in redact_text(f"it is {OWN}")


@pytest.mark.parametrize(
    ("settings", "mode", "match"),
    [
        (TokenSettings(token_env="BOARD"), 0o600, "tokens.board.token_env"),
        (TokenSettings(token_file="gone"), 0o600, "which does not exist"),
        (TokenSettings(token_file="board"), 0o644, "open to others"),
        (TokenSettings(token_file="short"), 0o600, "is not a token"),
    ],
    ids=["no variable", "no file", "open", "short"],
)
def test_a_token_of_the_settings_that_is_missing_open_or_short_is_refused(
    tmp_path: Path, settings: TokenSettings, mode: int, match: str
) -> None:
    for name, text in (("board", OWN), ("short", "short")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)

    with pytest.raises(SettingsError, match=match):
        read_named_token("board", settings, tmp_path, {})


def test_two_tokens_are_never_the_same(tmp_path: Path) -> None:
    one, other = TokenSettings(token_env="A"), TokenSettings(token_env="B")
    both = Config(tokens={"one": one, "other": other})

    with pytest.raises(SettingsError, match=r"tokens\.other has the same token as one"):
        Tokens.read(both, tmp_path, {"A": OWN, "B": OWN})
    with pytest.raises(SettingsError, match=r"tokens\.one has the same token as operator"):
        Tokens.read(Config(tokens={"one": one}), tmp_path, {"A": OWN, "HOLDFAST_TOKEN": OWN})
