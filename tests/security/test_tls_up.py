"""TLS of a whole gateway: its start, its URL, commands that call it, renewals, and changed settings."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.clock import SystemClock
from tests.certificates import DAY, Authority, write_pair
from tests.conftest import quick_directory
from tests.doors.calls import Call, run_process
from tests.security.running_gateway import RunningGateway, eventually

pytestmark = pytest.mark.slow

TLS = '[gateway.tls]\ncert = "cert.pem"\nkey = "key.pem"\n'


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def home(tmp_path: Path, authority: Authority) -> Iterator[Path]:
    with quick_directory(tmp_path) as place:
        home = place / "home"
        home.mkdir(mode=0o700)
        write_pair(home, authority.issue())
        (home / "ca.pem").write_text(authority.pem)
        (home / "holdfast.toml").write_text(TLS)
        yield home


def presented(one: RunningGateway, authority: Authority) -> str:
    port = int(one.url.rpartition(":")[2])
    return ssl.get_server_certificate(("127.0.0.1", port))


def settings_said(home: Path) -> str | None:
    found: str | None = run_process(home, "gateway", "status", "--json").json["settingsRefused"]
    return found


def test_up_prints_https_and_commands_call_it_with_the_private_authority(home: Path) -> None:
    with RunningGateway(home) as one:
        token = (home / "token").read_text().strip()
        elsewhere = home / "elsewhere"

        def call(url: str, **more: str) -> Call:
            return run_process(
                elsewhere, "gateway", "status", "--json", HOLDFAST_URL=url, HOLDFAST_TOKEN=token, **more
            )

        known = call(one.url, HOLDFAST_CA=str(home / "ca.pem"))
        unknown = call(one.url)
        plain = call(one.url.replace("https", "http"))
        missing = call(one.url, HOLDFAST_CA=str(home / "nothing.pem"))
        no_ca = call(one.url, HOLDFAST_CA=str(home / "token"))

    assert one.url.startswith("https://127.0.0.1:")
    assert known.status == 0, known.err
    assert known.json["status"] == "serving"
    assert (unknown.status, plain.status) == (2, 5)
    assert "name its PEM file in HOLDFAST_CA" in unknown.error["message"]
    assert "write https://" in plain.error["message"]
    assert (missing.status, no_ca.status) == (2, 2)
    assert "HOLDFAST_CA" in missing.error["message"]
    assert "it holds no certificate" in no_ca.error["message"]


def test_a_certificate_of_another_name_is_not_accepted(home: Path, authority: Authority) -> None:
    write_pair(home, authority.issue("gateway.example"))
    with RunningGateway(home) as one:
        found = run_process(home, "gateway", "status", HOLDFAST_URL=one.url, HOLDFAST_CA=str(home / "ca.pem"))

    assert found.status == 2
    assert "write a name that the certificate has" in found.err


def test_the_commands_at_home_need_no_certificate(home: Path) -> None:
    with RunningGateway(home):
        assert run_process(home, "gateway", "status").status == 0


def test_https_to_a_gateway_without_a_certificate_says_so(home: Path) -> None:
    (home / "holdfast.toml").write_text("")
    with RunningGateway(home) as one:
        found = run_process(home, "gateway", "status", HOLDFAST_URL=one.url.replace("http", "https"))

    assert found.status == 2
    assert "does not speak TLS" in found.err


def test_a_renewed_certificate_is_used_without_a_restart(home: Path, authority: Authority) -> None:
    with RunningGateway(home) as one:
        before = presented(one, authority)
        boot = run_process(home, "gateway", "status", "--json").json["bootId"]
        write_pair(home, authority.issue())
        after = eventually(lambda: (found := presented(one, authority)) != before and found)

        assert ssl.PEM_cert_to_DER_cert(after) == ssl.PEM_cert_to_DER_cert((home / "cert.pem").read_text())
        assert run_process(home, "gateway", "status", "--json").json["bootId"] == boot


def test_a_wrong_change_is_refused_in_sight_and_the_right_one_counts(
    home: Path, authority: Authority
) -> None:
    with RunningGateway(home) as one:
        before = presented(one, authority)
        (home / "holdfast.toml").write_text('[gateway.tls]\ncert = "nothing.pem"\nkey = "key.pem"\n')
        refused = eventually(lambda: settings_said(home))
        checked = run_process(home, "config", "check", "--json")
        still = presented(one, authority)
        (home / "holdfast.toml").write_text(TLS)
        eventually(lambda: settings_said(home) is None)

    assert "gateway.tls.cert" in refused
    assert still == before
    [found] = [one for one in checked.json["checks"] if one["name"] == "gateway.tls"]
    assert (checked.status, found["verdict"]) == (1, "fail")
    assert "write the certificate" in found["remedy"]


def test_a_renewal_that_does_not_fit_is_told_and_mended(home: Path, authority: Authority) -> None:
    key = (home / "key.pem").read_text()
    pair = authority.issue()
    with RunningGateway(home):
        write_pair(home, (pair[0], key))
        told = eventually(lambda: settings_said(home))
        write_pair(home, pair)
        eventually(lambda: settings_said(home) is None)

    assert "does not belong to gateway.tls.cert" in told


@pytest.mark.parametrize("what", ["missing", "expired", "open"])
def test_a_certificate_that_cannot_be_used_stops_the_start_with_its_key(
    home: Path, authority: Authority, what: str
) -> None:
    if what == "missing":
        (home / "cert.pem").unlink()
    elif what == "expired":
        write_pair(home, authority.issue(until=SystemClock().now() - DAY / 2))
    else:
        (home / "key.pem").chmod(0o644)

    started = run_process(home, "up", "--port", "0", "--json")
    checked = run_process(home, "config", "check")

    assert started.status == 78
    assert "gateway.tls." in json.loads(started.out)["error"]["message"]
    assert checked.status == 1
    assert "gateway.tls" in checked.out


def test_config_check_tells_names_and_the_end(home: Path) -> None:
    found = run_process(home, "config", "check")

    assert "for 127.0.0.1, localhost, until " in found.out
