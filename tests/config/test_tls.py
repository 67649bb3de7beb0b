"""gateway.tls: which certificates and keys are used, and what is said about all others."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.config import tls
from holdfast.config.files import load
from holdfast.config.sections import TlsSettings
from holdfast.config.tls import read_certificate
from holdfast.core.clock import SystemClock
from holdfast.core.errors import SettingsError
from tests.certificates import DAY, Authority, write_pair

SETTINGS = TlsSettings(cert="cert.pem", key="key.pem")
NOW = SystemClock().now()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def home(tmp_path: Path, authority: Authority) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    write_pair(home, authority.issue("gateway.example", until=NOW + 30 * DAY))
    return home


def refusal(home: Path) -> str:
    with pytest.raises(SettingsError) as refused:
        read_certificate(SETTINGS, home, now=NOW)
    return str(refused.value)


def test_a_certificate_tells_its_names_and_its_end(home: Path) -> None:
    found = read_certificate(SETTINGS, home, now=NOW)

    assert found is not None
    assert found.names == ["gateway.example"]
    assert abs(found.expires_at - NOW - 30 * DAY) < timedelta(seconds=2)


def test_without_a_certificate_the_doors_speak_plain_http(home: Path) -> None:
    assert read_certificate(TlsSettings(), home, now=NOW) is None


@pytest.mark.parametrize("given", ["cert", "key"])
def test_one_of_the_two_alone_is_refused(home: Path, given: str) -> None:
    (home / "holdfast.toml").write_text(f'[gateway.tls]\n{given} = "{given}.pem"\n')

    with pytest.raises(
        SettingsError, match=rf"gateway\.tls\.{'key' if given == 'cert' else 'cert'} .*set both"
    ):
        load(home, {})


@pytest.mark.parametrize("value", ['""', '"a\\u0000b"', "7", "[]", '"~nobody-at-all/cert.pem"'])
def test_a_path_that_is_none_is_refused_with_its_key(home: Path, value: str) -> None:
    (home / "holdfast.toml").write_text(f'[gateway.tls]\ncert = {value}\nkey = "key.pem"\n')

    with pytest.raises(SettingsError, match=r"gateway\.tls\.cert"):
        load(home, {})


def no_cert(home: Path, _: Authority) -> None:
    (home / "cert.pem").unlink()


def no_key(home: Path, _: Authority) -> None:
    (home / "key.pem").unlink()


def a_directory(home: Path, _: Authority) -> None:
    (home / "cert.pem").unlink()
    (home / "cert.pem").mkdir()


def noise_as_cert(home: Path, _: Authority) -> None:
    (home / "cert.pem").write_bytes(os.urandom(1000))


def noise_as_key(home: Path, _: Authority) -> None:
    (home / "key.pem").write_bytes(os.urandom(1000))


def nothing_as_cert(home: Path, _: Authority) -> None:
    (home / "cert.pem").write_text("")


def a_large_cert(home: Path, _: Authority) -> None:
    (home / "cert.pem").write_bytes(b"\n" * 300_000)


def another_key(home: Path, authority: Authority) -> None:
    (home / "key.pem").write_text(authority.issue()[1])


def expired(home: Path, authority: Authority) -> None:
    write_pair(home, authority.issue(since=NOW - 9 * DAY, until=NOW - DAY))


def not_yet_valid(home: Path, authority: Authority) -> None:
    write_pair(home, authority.issue(since=NOW + DAY))


def a_key_for_all(home: Path, _: Authority) -> None:
    (home / "key.pem").chmod(0o640)


def a_link_to_the_key(home: Path, _: Authority) -> None:
    (home / "key.pem").rename(home / "elsewhere.pem")
    (home / "key.pem").symlink_to("elsewhere.pem")


def a_cert_that_anyone_writes(home: Path, _: Authority) -> None:
    (home / "cert.pem").chmod(0o666)


REFUSED: list[tuple[Callable[[Path, Authority], None], str, str]] = [
    (no_cert, "gateway.tls.cert is", "is not there: write the certificate"),
    (no_key, "gateway.tls.key is", "is not there: write the private key there, mode 600"),
    (a_directory, "gateway.tls.cert is", "is no file: name the certificate"),
    (noise_as_cert, "gateway.tls.cert is", "holds no certificate"),
    (nothing_as_cert, "gateway.tls.cert is", "holds no certificate"),
    (a_large_cert, "gateway.tls.cert is", "is larger than"),
    (noise_as_key, "gateway.tls.key is", "holds no private key"),
    (another_key, "gateway.tls.key is", "does not belong to gateway.tls.cert"),
    (expired, "gateway.tls.cert is", "has expired at"),
    (not_yet_valid, "gateway.tls.cert is", "is not valid before"),
    (a_key_for_all, "gateway.tls.key is not used", "chmod 600"),
    (a_link_to_the_key, "gateway.tls.key is not used", "it is a link"),
    (a_cert_that_anyone_writes, "gateway.tls.cert is not used", "chmod go-w"),
]


@pytest.mark.parametrize(("spoil", "key", "words"), REFUSED, ids=[one[0].__name__ for one in REFUSED])
def test_what_cannot_be_used_is_refused_with_its_key_and_the_fix(
    home: Path, authority: Authority, spoil: Callable[[Path, Authority], None], key: str, words: str
) -> None:
    spoil(home, authority)

    said = refusal(home)

    assert said.startswith(key)
    assert words in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", ["cert", "key"])
def test_a_file_of_another_user_is_not_used(home: Path, name: str) -> None:
    os.chown(home / f"{name}.pem", 12345, -1)

    assert refusal(home).startswith(f"gateway.tls.{name} is not used: {home / name}.pem belongs to another")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the program openssl is not installed")
def test_a_key_with_a_password_is_refused_and_no_person_is_asked_for_it(home: Path) -> None:
    command = ["openssl", "pkey", "-in", "key.pem", "-aes256", "-passout", "pass:x", "-out", "sealed.pem"]
    subprocess.run(command, cwd=home, check=True)
    (home / "sealed.pem").chmod(0o600)
    (home / "sealed.pem").replace(home / "key.pem")

    assert "has a password" in refusal(home)


def test_a_pair_that_is_exchanged_while_it_is_read_is_read_again(
    home: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, renewals = tls._context, [authority.issue("renewed.example")]

    def context(cert: Path, key: Path) -> ssl.SSLContext:
        found = real(cert, key)
        if renewals:
            write_pair(home, renewals.pop())
        return found

    monkeypatch.setattr(tls, "_context", context)

    found = read_certificate(SETTINGS, home, now=NOW)

    assert found is not None
    assert found.names == ["renewed.example"]


def test_a_link_of_ours_to_a_certificate_is_followed(home: Path) -> None:
    """As the programs that renew certificates have it."""
    (home / "cert.pem").rename(home / "cert1.pem")
    (home / "cert.pem").symlink_to("cert1.pem")

    assert read_certificate(SETTINGS, home, now=NOW) is not None
