"""`holdfast security check` finds each weakness that was planted, and nothing in a clean home."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.cli import weaknesses
from holdfast.cli.invocation import Invocation
from holdfast.cli.main import main
from holdfast.cli.weaknesses import MachineFacts, look
from holdfast.config import token_file
from holdfast.config.token_file import terms_of, write_private, write_uses
from holdfast.core.clock import SystemClock
from holdfast.gateway.units import ServiceUnit, systemd_unit
from holdfast.views.security import WeaknessView
from tests.architecture.pages import CONFIGURE
from tests.certificates import DAY, Authority, write_pair

STRANGER = 12345
NOW = SystemClock().now()
TLS = '[gateway.tls]\ncert = "cert.pem"\nkey = "key.pem"\n'
AGENT = "[agents.ada]\ncommand = ['cat']\n"
SECRET = "s3cr3t" * 10

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home as a careful operator has it."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    write_private(home / "token", f"hf_gw_{'a1' * 32}\n".encode())
    settings(home, AGENT)
    return home


@pytest.fixture
def ground(tmp_path: Path) -> MachineFacts:
    """A machine without anything of the one that runs the tests."""
    programs = tmp_path / "bin"
    programs.mkdir(mode=0o755)
    (programs / "cat").touch(mode=0o755)
    return MachineFacts(uid=1000, environ={"PATH": str(programs)}, installed=[programs], units=[])


def settings(home: Path, text: str) -> Path:
    path = home / "holdfast.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def found(home: Path, ground: MachineFacts, *, store: str | None = None) -> dict[str, WeaknessView]:
    call = Invocation()
    call.home, call.store = str(home), store
    return {one.code: one for one in look(call, ground)}


def only(home: Path, ground: MachineFacts, code: str, **options: Any) -> WeaknessView:
    """The one weakness that was planted; there is no other."""
    all_found = found(home, ground, **options)
    assert list(all_found) == [code]
    return all_found[code]


# --- a clean home


def test_a_clean_home_has_no_finding(home: Path, ground: MachineFacts, authority: Authority) -> None:
    write_pair(home, authority.issue())
    write_private(home / "hook.secret", SECRET.encode())
    settings(
        home,
        "[gateway]\nhost = '0.0.0.0'\ntrusted_proxies = ['10.0.0.5']\nallowed_origins = ['https://a.example']\n"
        "python_path = ['modules']\n"
        + TLS
        + AGENT
        + "[channels.hook]\nkind = 'webhook'\nsecret_file = 'hook.secret'\nagent = 'ada'\n",
    )
    (home / "modules").mkdir(mode=0o700)
    an_issued_token(home, expires_at=NOW + 30 * DAY)

    assert found(home, ground) == {}


def test_a_home_that_is_not_there_yet_has_no_finding(tmp_path: Path, ground: MachineFacts) -> None:
    assert found(tmp_path / "nothing", ground) == {}


@pytest.fixture
def quiet_machine(ground: MachineFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weaknesses.MachineFacts, "here", lambda _home: ground)


def test_the_command_ends_with_0_in_a_clean_home(
    home: Path, quiet_machine: None, capfd: pytest.CaptureFixture[str]
) -> None:
    status = main(["security", "check", "--home", str(home)])

    out, err = capfd.readouterr()
    assert (status, out) == (0, "")
    assert "nothing to tighten" in err


def test_the_command_ends_with_1_and_says_what_why_and_the_remedy(
    home: Path, quiet_machine: None, capfd: pytest.CaptureFixture[str]
) -> None:
    home.chmod(0o755)

    status = main(["security", "check", "--home", str(home)])
    text = capfd.readouterr().out
    with_json = main(["security", "check", "--home", str(home), "--json"])
    view = json.loads(capfd.readouterr().out)

    assert (status, with_json) == (1, 1)
    assert text.startswith(f"home_open: {home} is open to others (mode 0755)\n  why: ")
    assert f"  do:  chmod 700 {shlex.quote(str(home))}\n" in text
    assert (view["isClean"], view["home"]) == (False, str(home))
    assert [set(one) for one in view["findings"]] == [{"code", "what", "why", "remedy"}]


def test_the_machine_itself_is_looked_at(tmp_path: Path) -> None:
    here = MachineFacts.here(tmp_path)

    assert here.uid == os.geteuid()
    assert all(place.exists() for place in here.installed)


# --- owners and modes


def test_a_home_that_all_can_read(home: Path, ground: MachineFacts) -> None:
    home.chmod(0o755)

    assert only(home, ground, "home_open").remedy == f"chmod 700 {home}"


def test_a_home_that_all_can_write(home: Path, ground: MachineFacts) -> None:
    home.chmod(0o777)

    assert found(home, ground)["home_foreign"].remedy == f"chmod go-w {home}"


@root_only
def test_a_home_of_another_user(home: Path, ground: MachineFacts) -> None:
    os.chown(home, STRANGER, -1)

    one = found(home, ground)["home_foreign"]

    assert "belongs to another user" in one.what
    assert one.remedy == f"chown root {home}"


def test_a_parent_that_its_group_can_write(home: Path, ground: MachineFacts) -> None:
    home.parent.chmod(0o775)
    os.chown(home.parent, -1, STRANGER) if os.geteuid() == 0 else home.parent.chmod(0o777)

    one = found(home, ground)["home_foreign"]
    home.parent.chmod(0o755)

    assert f"chmod go-w {home.parent}" in one.remedy


@root_only
def test_settings_of_another_user(home: Path, ground: MachineFacts) -> None:
    os.chown(home / "holdfast.toml", STRANGER, -1)

    all_found = found(home, ground)

    assert list(all_found) == ["settings_foreign", "settings_unusable"]
    assert all_found["settings_foreign"].remedy == f"chown root {home / 'holdfast.toml'}"


@pytest.mark.parametrize("name", ["token", "key", "environment", "ledger.db"])
def test_a_private_file_that_others_can_read(home: Path, ground: MachineFacts, name: str) -> None:
    (home / name).touch()
    (home / name).chmod(0o644)

    one = found(home, ground)["file_open"]

    assert one.remedy == f"chmod 600 {home / name}"


# --- secrets in settings


@pytest.mark.parametrize(
    "text",
    [
        f"[agents.ada]\ncommand = ['cat', '--key=sk-ant-{'c4n4ry' * 5}']\n",
        f"[tokens.board]\ntoken_env = 'hf_gw_{'a1' * 32}'\n",
        f"tasks = ['hf_gw_{'a1' * 32}']\n",
        f"this is no TOML: ghp_{'C4n4ry' * 6}\n",
        f"# the token is hf_gw_{'a1' * 32}\n",
    ],
)
def test_a_token_in_a_settings_document(home: Path, ground: MachineFacts, text: str) -> None:
    path = settings(home, text)

    one = found(home, ground)["secret_in_settings"]

    assert str(path) in one.remedy
    assert not any(secret in f"{one}" for secret in ("c4n4ry", "a1a1", "C4n4ry"))


def test_a_password_of_the_database_in_the_settings(home: Path, ground: MachineFacts) -> None:
    settings(home, "store = 'postgresql://ada:hunter22@localhost/x'\n")

    assert "hunter22" not in f"{only(home, ground, 'password_in_settings')}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "holdfast.toml",
            "[gateway]\nalertUrls = ['tgram://123456789:abcdefghijklmnopqrstuvwxyz012345678/1']\n",
        ),
        ("config/channels.yaml", "pager: {kind: apprise, urls: ['ntfys://ntfy.example/topic']}"),
        ("config/channels.yaml", "pager: {kind: apprise, urlsFile: pager.urls}"),
    ],
)
def test_addresses_of_services_have_no_other_place_and_are_no_finding(
    home: Path, ground: MachineFacts, name: str, text: str
) -> None:
    settings(home, "")
    (home / "config").mkdir(mode=0o700)
    (home / name).write_text(text)
    (home / name).chmod(0o600)

    assert found(home, ground) == {}


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        (
            "holdfast.toml",
            "[channels.alarm]\nkind = 'apprise'\nurls = ['mailto://ada:Xk93jdLq8sPz@example.com']\n",
            "channels.alarm.urls",
        ),
        (
            "holdfast.toml",
            "[gateway]\nalertUrls = ['mailtos://ada:Xk93jdLq8sPz@example.com']\n",
            "gateway.alertUrls",
        ),
        (
            "config/channels.yaml",
            "pager: {kind: apprise, urls: ['mailtos://ada:Xk93jdLq8sPz@mail.example']}",
            "channels.pager.urls",
        ),
    ],
)
def test_a_password_in_a_url_of_a_settings_document(
    home: Path, ground: MachineFacts, name: str, text: str, key: str
) -> None:
    settings(home, "")
    (home / "config").mkdir(mode=0o700)
    (home / name).write_text(text)
    (home / name).chmod(0o600)

    one = found(home, ground)["secret_in_settings"]

    assert one.what.startswith(f"{key} in ")
    assert "urls_file" in one.remedy
    assert "Xk93jdLq8sPz" not in f"{one}"


# --- tokens


def an_issued_token(home: Path, *, age: timedelta = timedelta(0), **terms: Any) -> None:
    given: dict[str, Any] = {"scopes": ["operator.read"], "owner": None, "tasks": None, "methods": None}
    token_file.create(
        home, "board", terms_of(**given, **({"expires_at": None} | terms)), taken=set(), now=NOW - age
    )


def test_an_old_token_of_the_home(home: Path, ground: MachineFacts) -> None:
    old = (NOW - 200 * DAY).timestamp()
    os.utime(home / "token", (old, old))

    one = only(home, ground, "token_old")

    assert "200 days" in one.what
    assert one.remedy == f"holdfast tokens rotate operator --home {home}"


def test_an_old_token_that_was_made_by_a_command(home: Path, ground: MachineFacts) -> None:
    an_issued_token(home, age=200 * DAY, expires_at=NOW + 30 * DAY)
    write_uses(home, {"board": NOW})

    assert only(home, ground, "token_old").remedy == f"holdfast tokens rotate board --home {home}"


def test_a_token_without_an_end(home: Path, ground: MachineFacts) -> None:
    an_issued_token(home)

    assert only(home, ground, "token_endless").remedy.endswith("--expires-in 90d")


def test_a_token_of_the_settings_without_an_end(home: Path, ground: MachineFacts) -> None:
    path = settings(home, "[tokens.board]\ntoken_file = 'board'\n")
    write_private(home / "board", b"b" * 64)

    one = only(home, ground, "token_endless")

    assert one.remedy == f"${{EDITOR:-vi}} {path} # tokens.board.expires_at = a moment to come"


def test_a_token_that_was_never_used(home: Path, ground: MachineFacts) -> None:
    an_issued_token(home, age=100 * DAY, expires_at=NOW + 30 * DAY)

    one = only(home, ground, "token_unused")

    assert "was never used in 100 days" in one.what
    assert one.remedy == f"holdfast tokens revoke board --home {home}"


def test_a_token_that_is_not_used_any_more(home: Path, ground: MachineFacts) -> None:
    an_issued_token(home, age=150 * DAY, expires_at=NOW + 30 * DAY)
    write_uses(home, {"board": NOW - 120 * DAY})

    assert "was not used in 120 days" in only(home, ground, "token_unused").what


def test_a_token_file_that_others_can_read(home: Path, ground: MachineFacts) -> None:
    settings(home, "[tokens.board]\ntoken_file = 'board'\nexpires_at = 2099-01-01T00:00:00Z\n")
    (home / "board").write_text("b" * 64)
    (home / "board").chmod(0o644)

    assert f"chmod 600 {home / 'board'}" in only(home, ground, "token_unusable").remedy


# --- doors


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "192.0.2.7", "gateway.example", "127.0.0.1.evil.example", "::1234", "localhost.x"],
)
def test_an_address_for_other_machines_without_tls(home: Path, ground: MachineFacts, host: str) -> None:
    settings(home, f"[gateway]\nhost = '{host}'\n")

    one = only(home, ground, "bind_without_tls")

    assert host in one.what
    assert "gateway.tls.cert" in one.remedy


def test_a_certificate_that_ends_soon(home: Path, ground: MachineFacts, authority: Authority) -> None:
    settings(home, TLS)
    write_pair(home, authority.issue(until=NOW + 7 * DAY))

    assert only(home, ground, "certificate_ends").what.endswith("UTC")


def test_a_certificate_that_has_ended(home: Path, ground: MachineFacts, authority: Authority) -> None:
    settings(home, TLS)
    write_pair(home, authority.issue(until=NOW - DAY / 2))

    assert "has expired" in only(home, ground, "certificate_unusable").what


def test_a_key_that_others_can_read(home: Path, ground: MachineFacts, authority: Authority) -> None:
    settings(home, TLS)
    write_pair(home, authority.issue())
    (home / "key.pem").chmod(0o644)

    assert f"chmod 600 {home / 'key.pem'}" in only(home, ground, "certificate_unusable").remedy


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("trusted_proxies = ['0.0.0.0/0']", "proxies_wide"),
        ("trusted_proxies = ['fd00::/8']", "proxies_wide"),
        ("allowed_origins = ['http://board.example']", "origin_plain"),
        ("alert_urls = ['http://alerts.example/x']", "alerts_plain"),
    ],
)
def test_settings_of_the_doors_that_let_in_too_much(
    home: Path, ground: MachineFacts, text: str, code: str
) -> None:
    settings(home, f"[gateway]\n{text}\n")

    assert str(home / "holdfast.toml") in only(home, ground, code).remedy


@pytest.mark.parametrize("secret", [None, "short"])
def test_a_webhook_without_a_secret(home: Path, ground: MachineFacts, secret: str | None) -> None:
    settings(home, AGENT + "[channels.hook]\nkind = 'webhook'\nsecret_file = 'hook'\nagent = 'ada'\n")
    if secret is not None:
        write_private(home / "hook", secret.encode())

    assert str(home / "hook") in only(home, ground, "webhook_secret").remedy


def test_a_webhook_that_answers_without_tls(home: Path, ground: MachineFacts) -> None:
    settings(
        home,
        "[channels.hook]\nkind = 'webhook'\nsecret_file = 'hook'\nurl = 'http://answers.example/x'\n",
    )
    write_private(home / "hook", SECRET.encode())

    assert "channels.hook.url" in only(home, ground, "webhook_plain").what


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_an_address_of_this_machine_needs_no_tls(home: Path, ground: MachineFacts, host: str) -> None:
    settings(home, f"[gateway]\nhost = '{host}'\n")

    assert found(home, ground) == {}


# --- paths


def writable(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o777)
    return path


def test_a_python_path_that_others_can_write(home: Path, ground: MachineFacts, tmp_path: Path) -> None:
    place = writable(tmp_path / "modules")
    settings(home, f"[gateway]\npython_path = ['{place}']\n")

    assert only(home, ground, "modules_writable").remedy == f"chmod go-w {place}"


@pytest.mark.parametrize("part", ["", ".", "bin"])
def test_a_part_of_path_that_depends_on_the_working_directory(
    home: Path, ground: MachineFacts, part: str
) -> None:
    environ = {"PATH": f"{ground.environ['PATH']}:{part}"}

    one = only(home, msgspec.structs.replace(ground, environ=environ), "path_writable")

    assert "directory of each start" in one.what


@pytest.mark.parametrize("is_there", [True, False])
def test_a_part_of_path_that_others_can_write_or_make(
    home: Path, ground: MachineFacts, tmp_path: Path, *, is_there: bool
) -> None:
    place = writable(tmp_path / "programs")
    environ = {"PATH": f"{ground.environ['PATH']}:{place if is_there else place / 'missing'}"}

    one = only(home, msgspec.structs.replace(ground, environ=environ), "path_writable")

    assert one.remedy == f"chmod go-w {place}"


def test_a_python_path_of_the_environment_that_others_can_write(
    home: Path, ground: MachineFacts, tmp_path: Path
) -> None:
    place = writable(tmp_path / "modules")
    environ = {**ground.environ, "PYTHONPATH": str(place)}

    assert only(home, msgspec.structs.replace(ground, environ=environ), "modules_writable")


def test_a_program_that_others_can_change(home: Path, ground: MachineFacts, tmp_path: Path) -> None:
    place = writable(tmp_path / "venv")

    assert only(home, msgspec.structs.replace(ground, installed=[place]), "code_writable")


# --- units


def a_unit(tmp_path: Path, home: Path, **environment: str) -> Path:
    path = tmp_path / "holdfast.service"
    service = ServiceUnit(
        command=["holdfast", "up"],
        home=str(home),
        user="ada",
        environment={"HOLDFAST_HOME": str(home), **environment},
        drain_timeout_s=90,
    )
    path.write_text(systemd_unit(service))
    path.chmod(0o644)
    return path


def test_our_own_unit_has_no_finding(home: Path, ground: MachineFacts, tmp_path: Path) -> None:
    assert found(home, msgspec.structs.replace(ground, units=[a_unit(tmp_path, home)])) == {}


def test_a_path_of_the_unit_that_others_can_write(home: Path, ground: MachineFacts, tmp_path: Path) -> None:
    place = writable(tmp_path / "programs")
    unit = a_unit(tmp_path, home, PATH=f"/usr/bin:{place}")

    one = found(home, msgspec.structs.replace(ground, units=[unit]))["path_writable"]

    assert str(unit) in one.what
    assert one.remedy == f"chmod go-w {place}"


def test_a_unit_without_limits(home: Path, ground: MachineFacts, tmp_path: Path) -> None:
    unit = a_unit(tmp_path, home)
    unit.write_text(f"[Service]\nEnvironment=HOLDFAST_HOME={home}\nExecStart=holdfast up\n")

    one = only(home, msgspec.structs.replace(ground, units=[unit]), "unit_soft")

    assert one.remedy.startswith(f"holdfast gateway unit --home {home} > {unit}")


def test_a_unit_of_another_home_is_not_ours_to_judge(
    home: Path, ground: MachineFacts, tmp_path: Path
) -> None:
    unit = a_unit(tmp_path, tmp_path / "other")
    unit.chmod(0o666)

    assert found(home, msgspec.structs.replace(ground, units=[unit])) == {}


# --- agents and the ledger


def test_an_agent_that_runs_as_root(home: Path, ground: MachineFacts) -> None:
    one = only(home, msgspec.structs.replace(ground, uid=0), "agent_as_root")

    assert "ada" in one.what
    assert "gateway unit --user holdfast" in one.remedy


def test_a_gateway_without_agents_may_run_as_root(home: Path, ground: MachineFacts) -> None:
    settings(home, "")

    assert found(home, msgspec.structs.replace(ground, uid=0)) == {}


def a_setuid_program(programs: Path) -> str:
    path = programs / "raise-me"
    path.touch(mode=0o755)
    path.chmod(0o4755)
    return "raise-me"


@pytest.mark.parametrize("make", [lambda _: "sudo", lambda _: "/usr/bin/doas", a_setuid_program])
def test_an_agent_whose_command_raises_its_rights(
    home: Path, ground: MachineFacts, make: Callable[[Path], str]
) -> None:
    program = make(Path(ground.environ["PATH"]))
    if program == "raise-me" and os.geteuid() != 0:
        pytest.skip("only root can make a program of root")
    settings(home, f"[agents.ada]\ncommand = ['{program}', 'cat']\n")

    assert program in only(home, ground, "agent_as_root").what


def test_secrets_that_are_never_sealed(home: Path, ground: MachineFacts) -> None:
    settings(home, "[store]\nseal = 'never'\n")

    assert only(home, ground, "seal_never").remedy.endswith('store.seal = "secrets"')


@pytest.mark.parametrize(
    ("url", "is_found"),
    [
        ("postgresql://db.example/x", True),
        ("postgresql://db.example/x?sslmode=prefer", True),
        ("postgresql://db.example/x?sslmode=verify-full", False),
        ("postgresql://localhost/x", False),
        ("postgresql:///x?host=/run/postgresql", False),
    ],
)
def test_a_database_elsewhere_without_tls(
    home: Path, ground: MachineFacts, url: str, *, is_found: bool
) -> None:
    assert ("store_plain" in found(home, ground, store=url)) == is_found


# --- the guide


def test_the_guide_lists_every_code() -> None:
    source = Path(weaknesses.__file__).read_text(encoding="utf-8")
    guide = (
        CONFIGURE.with_name("operate.md")
        .read_text(encoding="utf-8")
        .partition("## What to tighten")[2]
        .partition("\n## ")[0]
    )
    used = set(re.findall(r'(?:_weakness|_places)\(\s*"([a-z_]+)"', source))

    assert used == set(re.findall(r"^\| `([a-z_]+)` \|", guide, re.MULTILINE))


# --- what cannot be looked at


@pytest.mark.parametrize("text", ["[", "x = 1", "[gateway]\nport = 'x'\n", "store = 7"])
def test_settings_that_cannot_be_read_hide_nothing_else(home: Path, ground: MachineFacts, text: str) -> None:
    home.chmod(0o755)
    settings(home, text)

    all_found = found(home, ground)

    assert list(all_found) == ["home_open", "settings_unusable"]
    assert all_found["settings_unusable"].remedy == f"holdfast config check --home {home}"


def test_a_document_that_is_no_file_keeps_no_command_waiting(home: Path, ground: MachineFacts) -> None:
    (home / "holdfast.toml").unlink()
    os.mkfifo(home / "holdfast.toml", 0o600)

    assert found(home, ground) == {}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_a_part_of_path_that_cannot_be_looked_at_hides_nothing(
    home: Path, ground: MachineFacts, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    environ = {"PATH": f"{ground.environ['PATH']}:{closed / 'bin'}"}
    home.chmod(0o755)

    assert "home_open" in found(home, msgspec.structs.replace(ground, environ=environ))


def test_no_ledger_and_no_file_is_made(home: Path, ground: MachineFacts) -> None:
    before = sorted(home.iterdir())

    found(home, ground)

    assert sorted(home.iterdir()) == before


def test_it_is_refused_for_a_gateway_elsewhere(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "https://gateway.example")

    assert main(["security", "check", "--home", str(home)]) == 3
