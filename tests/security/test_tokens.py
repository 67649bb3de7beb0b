"""`holdfast tokens`: made with a name and limits, shown once, listed with the last use, revoked, rotated."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.api.tokens import Tokens
from holdfast.config import token_file
from holdfast.config.sections import Config, TokenSettings
from holdfast.core.errors import Refused, SettingsError
from tests.doors.calls import Run, run_process
from tests.doors.conftest import _clean_environment, home, run  # noqa: F401 - fixtures
from tests.security.running_gateway import RunningGateway, eventually

NOW = datetime(2026, 3, 29, tzinfo=UTC)


def terms(**changes: object) -> TokenSettings:
    given: dict[str, object] = {"owner": None, "tasks": None, "methods": None, "expires_at": None}
    return token_file.terms_of(scopes=["operator.read"], **given | changes)  # type: ignore[arg-type]


def opens(home: Path, text: str) -> bool:  # noqa: F811 - a fixture's name
    return Tokens.read(Config(), home, {}).find(text) is not None


# --- the command, without a gateway


def test_a_token_is_made_with_its_limits_and_shown_once(run: Run, home: Path) -> None:  # noqa: F811
    made = run(
        *("tokens", "create", "shop", "--scope", "write", "--owner", "ada", "--task", "buy"),
        *("--method", "ledger.create", "--expires-in", "30d", "--json"),
    )
    listed = run("tokens", "list", "--json")

    text = made.json["text"]
    assert made.status == 0
    assert text.startswith("hf_gw_")
    assert opens(home, text)
    (shop,) = [one for one in listed.json["tokens"] if one["name"] == "shop"]
    assert (shop["source"], shop["scopes"], shop["owner"]) == ("issued", ["operator.write"], "ada")
    assert (shop["tasks"], shop["methods"]) == (["buy"], ["ledger.create"])
    assert datetime.fromisoformat(shop["expiresAt"]) - datetime.fromisoformat(shop["createdAt"]) > timedelta(
        days=29
    )
    assert shop["lastUsedAt"] is None
    assert text not in listed.out + listed.err
    assert text not in (home / "tokens.json").read_text()
    assert (home / "tokens.json").stat().st_mode & 0o777 == 0o600


def test_the_text_alone_stands_on_stdout(run: Run, home: Path) -> None:  # noqa: F811
    made = run("tokens", "create", "board", "--read-only")

    assert opens(home, made.out.strip())
    assert "it is not shown again" in made.err


def test_a_token_that_is_revoked_or_rotated_opens_nothing(run: Run, home: Path) -> None:  # noqa: F811
    first = run("tokens", "create", "board").out.strip()
    second = run("tokens", "rotate", "board").out.strip()
    assert (opens(home, first), opens(home, second)) == (False, True)

    revoked = run("tokens", "revoke", "board", "--json")

    assert revoked.json["token"]["name"] == "board"
    assert not opens(home, second)
    assert run("tokens", "revoke", "board").status == 4


def test_the_home_s_own_token_is_rotated_and_not_revoked(run: Run, home: Path) -> None:  # noqa: F811
    first = run("tokens", "rotate", "operator").out.strip()
    second = run("tokens", "rotate", "operator", "--json").json["text"]
    refused = run("tokens", "revoke", "operator")

    assert (opens(home, first), opens(home, second)) == (False, True)
    assert (refused.status, "tokens rotate operator" in refused.err) == (3, True)


def test_tokens_of_the_settings_are_listed_and_changed_there(run: Run, home: Path) -> None:  # noqa: F811
    home.mkdir(mode=0o700)
    (home / "holdfast.toml").write_text(
        '[tokens.board]\ntoken_env = "BOARD"\nexpires_at = 2020-01-01T00:00:00Z\n'
    )

    listed = run("tokens", "list")
    refused = [run("tokens", word, "board") for word in ("create", "revoke", "rotate")]
    # One that was made before the settings had the name can still be taken away.
    older = token_file.create(home, "board", terms(), taken=set(), now=NOW)
    assert run("tokens", "revoke", "board").status == 0
    assert not opens(home, older.text)

    assert "board" in listed.out
    assert "(expired)" in listed.out
    assert [one.status for one in refused] == [3, 3, 3]
    assert "tokens.board" in refused[1].err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("no good",), "use 1 to 64 letters"),
        (("operator",), "token of this home"),
        (("a", "--expires-at", "tomorrow"), "is not a time"),
        (("a", "--expires-at", "2030-01-01"), "add the UTC offset"),
        (("a", "--expires-at", "2020-01-01T00:00:00Z"), "is in the past"),
        (("a", "--expires-in", "1h", "--expires-at", "2030-01-01T00:00:00Z"), "exclude each other"),
        (("a", "--read-only", "--scope", "admin"), "allows no other --scope"),
        (("a", "--method", "ledger.creat"), "did you mean ledger.create"),
        (("a", "--scope", "admin", "--owner", "ada"), "cannot have operator.admin"),
    ],
)
def test_a_token_that_cannot_be_is_refused(run: Run, arguments: tuple[str, ...], expected: str) -> None:  # noqa: F811
    refused = run("tokens", "create", *arguments)

    assert refused.status in (2, 3)
    assert expected in refused.err
    assert refused.out == ""


def test_tokens_are_made_where_the_gateway_runs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("HOLDFAST_URL", "http://127.0.0.1:1")

    assert "HOLDFAST_URL" in run("tokens", "create", "board").err


# --- the file


def test_threads_that_make_tokens_at_once_lose_none(tmp_path: Path) -> None:
    def make(number: int) -> None:
        token_file.create(tmp_path, f"t{number}", terms(), taken=set(), now=NOW)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    assert len(token_file.read_issued(tmp_path)) == 16


def test_a_process_that_holds_the_file_for_long_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was frozen in the middle of a change does: what it read is still true when it wakes."""
    monkeypatch.setattr(token_file, "_PATIENCE_S", 0.05)

    with token_file._alone(tmp_path), pytest.raises(Refused, match="try again"):
        token_file.create(tmp_path, "board", terms(), taken=set(), now=NOW)

    token_file.create(tmp_path, "board", terms(), taken=set(), now=NOW)


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    token_file.create(tmp_path, "board", terms(), taken=set(), now=NOW)

    with pytest.raises(Refused, match="tokens rotate board"):
        token_file.create(tmp_path, "board", terms(), taken=set(), now=NOW)


@pytest.mark.parametrize(
    ("content", "mode", "expected"),
    [
        ("{", 0o600, "create its tokens again"),
        ('{"version": 9, "tokens": []}', 0o600, "newer Holdfast"),
        ('{"version": 1, "tokens": []}', 0o644, "open to others"),
    ],
)
def test_a_file_that_cannot_be_trusted_is_refused(
    tmp_path: Path, content: str, mode: int, expected: str
) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(content)
    path.chmod(mode)

    with pytest.raises(SettingsError, match=expected):
        token_file.read_issued(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("scene", ["create", "revoke", "rotate", "operator"])
def test_a_process_that_is_killed_anywhere_leaves_the_tokens_as_before_or_as_after(
    tmp_path: Path, scene: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.security.token_kills", scene, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 6


# --- the command, with a gateway


@pytest.mark.slow
def test_a_gateway_that_runs_makes_lists_and_revokes_tokens(tmp_path: Path) -> None:
    where = tmp_path / "home"
    where.mkdir(mode=0o700)
    gone, absent = '[tokens.gone]\ntoken_file = "gone"\n', '[tokens.absent]\ntoken_file = "absent"\n'
    (where / "holdfast.toml").write_text(gone + absent)
    (where / "gone").touch(mode=0o600)
    (where / "gone").write_text("x" * 40)
    with RunningGateway(where) as gateway:
        # A token whose file is missing neither stops the start nor keeps another one from being taken away.
        assert gateway.post("health", {}, token="x" * 40).status_code == 200
        (where / "holdfast.toml").write_text(absent)
        eventually(lambda: gateway.post("health", {}, token="x" * 40).status_code == 401)
        text = run_process(where, "tokens", "create", "board", "--json").json["text"]
        assert gateway.post("ledger.list", {}, token=text).status_code == 200

        def last_use() -> object:
            found = run_process(where, "tokens", "list", "--json").json["tokens"]
            return next(one["lastUsedAt"] for one in found if one["name"] == "board")

        assert eventually(last_use)
        operator = run_process(where, "tokens", "rotate", "operator", "--json").json["text"]
        assert gateway.post("ledger.list", {}, token=operator).status_code == 200
        assert run_process(where, "tokens", "revoke", "board").status == 0
        assert gateway.post("ledger.list", {}, token=text).status_code == 401
        refused = run_process(where, "tokens", "revoke", "board")

    assert (refused.status, "no token 'board'" in refused.err) == (4, True)
