"""The operator's own certificate: read, checked, and tried once in memory before any client meets it."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from holdfast import trust
from holdfast.config.sections import TlsSettings
from holdfast.config.token import read_private
from holdfast.core.errors import SettingsError

CERT, KEY = "gateway.tls.cert", "gateway.tls.key"
MAX_BYTES = 256 * 1024
# X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which `ssl` does not name: we compare the times ourselves.
_NO_CHECK_TIME = 0x200000
# Files that change while they are read are read again.
_ATTEMPTS = 3
# A handshake takes three.
_ROUNDS = 10
# What `load_cert_chain` says about the certificate and not about the key.
_WEAK = frozenset({"EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"})


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate that can be used now, and the context that presents it."""

    context: ssl.SSLContext
    names: list[str]
    expires_at: datetime


def paths_of(settings: TlsSettings, home: Path) -> tuple[Path, Path] | None:
    """The files of the certificate and of its key; None while the doors speak plain HTTP."""
    if settings.cert is None or settings.key is None:
        return None
    # Not resolved: a link to the key is not followed.
    return home / Path(settings.cert).expanduser(), home / Path(settings.key).expanduser()


def read_certificate(settings: TlsSettings, home: Path, *, now: datetime) -> Certificate | None:
    """The certificate of the settings, ready for the doors; None if they name none.

    Raises SettingsError with the key and the fix for one that is missing, damaged, expired or not yet valid,
    that does not belong to its key, or whose files other users could have written or read.
    """
    paths = paths_of(settings, home)
    if paths is None:
        return None
    for _ in range(_ATTEMPTS - 1):
        looks = _looks(paths)
        try:
            found = _read(*paths, now=now)
        except SettingsError:
            if _looks(paths) == looks:
                raise
        else:
            if _looks(paths) == looks:
                return found
        # A renewal was being written: parts of two pairs were read.
    return _read(*paths, now=now)


def _looks(paths: tuple[Path, Path]) -> list[tuple[int, ...] | None]:
    return [trust.version_of(path) for path in paths]


def _read(cert: Path, key: Path, *, now: datetime) -> Certificate:
    _check_cert(cert)
    _check_key(key)
    context = _context(cert, key)
    found = _tried(context, cert)
    expires_at = _moment(found["notAfter"])
    if now >= expires_at:
        why = f"has expired at {_shown(expires_at)}"
        raise _unusable(CERT, cert, f"{why}: renew it, and write the new one there")
    valid_from = _moment(found["notBefore"])
    if now < valid_from:
        why = f"is not valid before {_shown(valid_from)}"
        raise _unusable(CERT, cert, f"{why}: wait, or set the clock of this machine (timedatectl)")
    names = [str(value) for _, value in found.get("subjectAltName", ())]
    return Certificate(context=context, names=names, expires_at=expires_at)


def _check_cert(path: Path) -> None:
    try:
        problem = trust.why_not_trusted(path)
        if problem is not None:
            raise SettingsError(f"{CERT} is not used: {problem}")
        if not path.is_file():
            raise _unusable(CERT, path, "is no file: name the certificate, as PEM")
        if path.stat().st_size > MAX_BYTES:
            raise _unusable(CERT, path, f"is larger than {MAX_BYTES:,} bytes: name the certificate, as PEM")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except FileNotFoundError as error:
        raise _unusable(CERT, path, "is not there: write the certificate with its chain there") from error
    except ssl.SSLError as error:
        fix = "write the certificate with its chain there, as PEM"
        raise _unusable(CERT, path, f"holds no certificate: {fix}") from error
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
        raise _unusable(CERT, path, f"{why}: let the gateway's user read it") from error


def _check_key(path: Path) -> None:
    """As every private file: ours, for us alone, and no link."""
    try:
        read_private(path, max_bytes=MAX_BYTES)
    except FileNotFoundError as error:
        raise _unusable(KEY, path, "is not there: write the private key there, mode 600") from error
    except SettingsError as error:
        raise SettingsError(f"{KEY} is not used: {error}") from error


def _context(cert: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # One connection costs us one handshake.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])

    def refuse() -> str:
        # Without this OpenSSL would ask at the terminal, and the gateway would wait for the answer.
        fix = f"openssl pkey -in {key} -out NEW_FILE && chmod 600 NEW_FILE"
        raise _unusable(KEY, key, f"has a password, which nothing could enter at a restart: {fix}")

    try:
        context.load_cert_chain(cert, key, password=refuse)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = f"does not belong to {CERT}, {str(cert)!r}: write both files anew, from one renewal"
            raise _unusable(KEY, key, why) from error
        if error.reason in _WEAK:
            why = f"is too weak ({error.reason}): make one with a key of 2048 bits or more"
            raise _unusable(CERT, cert, why) from error
        raise _unusable(KEY, key, "holds no private key: write the private key there, as PEM") from error
    except OSError as error:
        raise _unusable(KEY, key, f"cannot be read ({error.strerror}): look at both files") from error
    return context


def _tried(context: ssl.SSLContext, cert: Path) -> dict[str, tuple[tuple[str, str], ...]]:
    """What a client sees of the certificate, in a handshake that does not leave this process."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    # Trust the certificate itself here: real clients check its issuer.
    client.load_verify_locations(cafile=cert)
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    asks, answers = client.wrap_bio(ours, theirs), context.wrap_bio(theirs, ours, server_side=True)
    try:
        for _ in range(_ROUNDS):
            for side in (asks, answers):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        found = asks.getpeercert()
    except (ssl.SSLError, ValueError) as error:
        why = getattr(error, "verify_message", None) or getattr(error, "reason", None) or str(error)
        fix = "make one for a TLS server"
        raise _unusable(CERT, cert, f"is refused by TLS clients ({why}): {fix}") from error
    assert found is not None
    return found  # type: ignore[return-value]


def _moment(text: object) -> datetime:
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(text)), UTC)


def _shown(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _unusable(key: str, path: Path, why: str) -> SettingsError:
    return SettingsError(f"{key} is {str(path)!r}, which {why}")
