"""Which parts of settings are secrets that must not be stored or shown."""

from __future__ import annotations

import pytest

from holdfast.config.secret_registration import keep_secrets, secrets_in, secrets_in_store
from holdfast.config.sections import ChannelSettings, Config, GatewaySettings, StoreSettings
from holdfast.core.redaction import redact_text


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("postgresql://ada:correct9horse@db.example.com:5432/ledger", ["correct9horse"]),
        ("postgresql://ada:p%40ss-word-1@db/ledger", ["p%40ss-word-1", "p@ss-word-1"]),
        ("postgresql://ada@db.example.com/ledger?sslmode=require", []),
        ("postgresql://holdfast:holdfast@localhost/holdfast", []),
        ("tgram://lemonadelemonadelemonade/main", ["lemonadelemonadelemonade"]),
        (
            "tgram://123456789:AAhdq9TcvCH1vGWJxfSeofSAs0K5PALDsaw/12345",
            ["AAhdq9TcvCH1vGWJxfSeofSAs0K5PALDsaw"],
        ),
        ("https://hooks.example.com/services/T024BE7LD/B1?key=Zm9vYmFy1", ["T024BE7LD", "Zm9vYmFy1"]),
    ],
)
def test_what_of_an_address_is_a_secret(url: str, found: list[str]) -> None:
    assert secrets_in(url) == found


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("postgresql://ada:correct9horse@db.example.com:5432/ledger2024", ["correct9horse"]),
        ("postgresql://ada@db/ledger?password=correct9horse", ["correct9horse"]),
        ("postgresql://ada4711xyz@db/harbour2024", []),
        ("postgresql://ada@/x?host=/tmp/holdfast-pg-te8cc_ph&port=5432", []),
        ("postgresql://ada@/x?host=/tmp/pg-te8cc_ph&password=correct9horse", ["correct9horse"]),
        ("postgresql://ada@/x?sslpassword=correct9horse&dbname=harbour2024", ["correct9horse"]),
        ("sqlite:////srv/harbour2024/work1.db", []),
        ("", []),
    ],
)
def test_what_of_the_address_of_the_ledger_is_a_secret(url: str, found: list[str]) -> None:
    assert secrets_in_store(url) == found


def test_the_secrets_of_settings_and_environment_are_known_once_they_are_read() -> None:
    config = Config(
        store=StoreSettings(url="postgresql://ada:correct9horse@db/ledger"),
        gateway=GatewaySettings(alert_urls=["ntfys://topic-7f3Kq9Zx"]),
        channels={"a": ChannelSettings(kind="apprise", urls=["tgram://Xk3a9Tcv/1"])},
    )
    environ = {"HOLDFAST_SECRET_SHOP": "swordfish", "PGPASSWORD": "hunter22", "HOME": "/home/ada"}

    keep_secrets(config, environ)

    for secret in ("correct9horse", "topic-7f3Kq9Zx", "Xk3a9Tcv", "swordfish", "hunter22"):
        assert secret not in redact_text(f"it was {secret} again")
    assert redact_text("at /home/ada") == "at /home/ada"
