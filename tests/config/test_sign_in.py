"""Sign-in codes: each works once and for ten minutes, also when two requests race for it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.config import sign_in
from holdfast.core.errors import SettingsError

NOW = datetime(2026, 11, 19, 3, tzinfo=UTC)
REDEEM = """
import sys
from datetime import datetime
from pathlib import Path
from holdfast.config.sign_in import redeem_code
sys.stdin.read(1)
print(redeem_code(Path(sys.argv[1]), sys.argv[2], datetime.fromisoformat(sys.argv[3])))
"""


def test_a_code_gives_the_name_of_its_token_once(tmp_path: Path) -> None:
    code = sign_in.make_code(tmp_path, NOW, token="board")

    assert sign_in.redeem_code(tmp_path, code, NOW) == "board"
    assert sign_in.redeem_code(tmp_path, code, NOW) is None


@pytest.mark.parametrize(
    ("later", "token"),
    [
        (timedelta(minutes=9, seconds=59), "operator"),
        (timedelta(minutes=10), None),
        (timedelta(days=400), None),
        # The clock was set back: the code would last longer than it should.
        (-timedelta(hours=1), None),
    ],
)
def test_a_code_is_valid_for_ten_minutes(tmp_path: Path, later: timedelta, token: str | None) -> None:
    code = sign_in.make_code(tmp_path, NOW)

    assert sign_in.redeem_code(tmp_path, code, NOW + later) == token


@pytest.mark.parametrize(
    "code", ["", " ", "x", "../token", "a/b", "\0", "\udcff", "x" * 100_000, "open-0123456789abcdef.html"]
)
def test_what_is_no_code_is_refused(tmp_path: Path, code: str) -> None:
    sign_in.make_code(tmp_path, NOW)

    assert sign_in.redeem_code(tmp_path, code, NOW) is None


def test_of_several_processes_with_one_code_one_signs_in(tmp_path: Path) -> None:
    code = sign_in.make_code(tmp_path, NOW)
    command = [sys.executable, "-c", REDEEM, str(tmp_path), code, NOW.isoformat()]
    racers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    for one in racers:
        assert one.stdin is not None
        one.stdin.write("x")
        one.stdin.flush()

    assert sorted(one.communicate(timeout=60)[0].strip() for one in racers) == ["None"] * 3 + ["operator"]


def test_codes_and_the_key_are_private_and_do_not_contain_the_code(tmp_path: Path) -> None:
    code = sign_in.make_code(tmp_path, NOW)
    sign_in.read_key(tmp_path)
    folder = tmp_path / sign_in.CODES_NAME

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in [*folder.iterdir(), tmp_path / sign_in.KEY_NAME]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert code not in path.name
        assert code not in path.read_text()


def test_a_damaged_code_is_refused(tmp_path: Path) -> None:
    code = sign_in.make_code(tmp_path, NOW)
    (path,) = (tmp_path / sign_in.CODES_NAME).iterdir()
    path.write_text('{"token":')

    assert sign_in.redeem_code(tmp_path, code, NOW) is None


def test_a_folder_that_others_can_open_is_refused(tmp_path: Path) -> None:
    (tmp_path / sign_in.CODES_NAME).mkdir(mode=0o755)
    (tmp_path / sign_in.CODES_NAME).chmod(0o755)

    with pytest.raises(SettingsError, match="only the gateway's user"):
        sign_in.make_code(tmp_path, NOW)


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / sign_in.CODES_NAME).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(SettingsError, match="only the gateway's user"):
        sign_in.make_code(tmp_path, NOW)


def test_old_codes_are_removed_when_the_next_one_is_made(tmp_path: Path) -> None:
    sign_in.make_code(tmp_path, NOW)
    sign_in.opening_file(tmp_path, "http://127.0.0.1:1/x#y", NOW)
    folder = tmp_path / sign_in.CODES_NAME
    for path in folder.iterdir():
        os.utime(path, (NOW.timestamp(), NOW.timestamp()))

    sign_in.make_code(tmp_path, NOW + timedelta(minutes=11))

    assert len(list(folder.iterdir())) == 1


def test_a_sign_out_is_kept_as_long_as_its_cookie_lasts(tmp_path: Path) -> None:
    sign_in.note_sign_out(tmp_path, "one")
    (path,) = (tmp_path / sign_in.CODES_NAME).iterdir()
    os.utime(path, (NOW.timestamp(), NOW.timestamp()))

    sign_in.make_code(tmp_path, NOW + sign_in.SIGNED_IN_LASTS - timedelta(minutes=1))
    assert sign_in.has_signed_out(tmp_path, "one")
    assert not sign_in.has_signed_out(tmp_path, "two")

    sign_in.make_code(tmp_path, NOW + sign_in.SIGNED_IN_LASTS + timedelta(minutes=1))
    assert not sign_in.has_signed_out(tmp_path, "one")


def test_signing_out_twice_is_no_error(tmp_path: Path) -> None:
    sign_in.note_sign_out(tmp_path, "one")
    sign_in.note_sign_out(tmp_path, "one")

    assert sign_in.has_signed_out(tmp_path, "one")


def test_the_key_is_made_once_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    assert sign_in.read_key(tmp_path) == sign_in.read_key(tmp_path)

    (tmp_path / sign_in.KEY_NAME).write_text("short\n")
    with pytest.raises(SettingsError, match="dashboard-key is not a key"):
        sign_in.read_key(tmp_path)


def test_a_page_that_leads_to_the_link_is_private(tmp_path: Path) -> None:
    path = sign_in.opening_file(tmp_path, "http://127.0.0.1:1/dashboard/sign-in#code", NOW)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "url=http://127.0.0.1:1/dashboard/sign-in#code" in path.read_text()
