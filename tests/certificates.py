"""Certificates for tests, made here: an authority and what it signs, with any names and any dates.

X.509 in DER with Ed25519 keys of PyNaCl, which the package has anyway: neither the program openssl nor one
more dependency is needed.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nacl.signing import SigningKey

from holdfast.core.clock import SystemClock

_ED25519 = bytes.fromhex("300506032b6570")
_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
DAY = timedelta(days=1)


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    length = len(content)
    if length < 128:
        return bytes([tag, length]) + content
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(size)]) + size + content


def _integer(number: int) -> bytes:
    return _der(0x02, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _name(common: str) -> bytes:
    return _der(0x30, _der(0x31, _der(0x30, bytes.fromhex("0603550403"), _der(0x0C, common.encode()))))


def _time(moment: datetime) -> bytes:
    return _der(0x17, f"{moment.astimezone(UTC):%y%m%d%H%M%SZ}".encode())


def _extension(oid: str, value: bytes, *, is_critical: bool = False) -> bytes:
    critical = b"\x01\x01\xff" if is_critical else b""
    return _der(0x30, bytes.fromhex(oid), critical, _der(0x04, value))


def _key_id(key: SigningKey) -> bytes:
    return hashlib.sha256(bytes(key.verify_key)).digest()[:20]


def _alternative(name: str) -> bytes:
    try:
        return _der(0x87, ipaddress.ip_address(name).packed)
    except ValueError:
        return _der(0x82, name.encode())


def _pem(kind: str, content: bytes) -> str:
    text = base64.encodebytes(content).decode()
    return f"-----BEGIN {kind}-----\n{text}-----END {kind}-----\n"


class Authority:
    """One that signs certificates; its own is what a client has to know."""

    def __init__(self, name: str = "Test authority") -> None:
        self._name = name
        self._key = SigningKey.generate()
        now = SystemClock().now()
        self.pem = self._signed(name, self._key, now - DAY, now + 3650 * DAY, is_authority=True)

    def issue(
        self, *names: str, since: datetime | None = None, until: datetime | None = None
    ) -> tuple[str, str]:
        """A certificate for these names and its key, as PEM."""
        now = SystemClock().now()
        key = SigningKey.generate()
        names = names or ("127.0.0.1", "localhost")
        cert = self._signed(names[0], key, since or now - DAY, until or now + 90 * DAY, names=names)
        return cert, _pem("PRIVATE KEY", _PKCS8 + bytes(key))

    def _signed(
        self,
        name: str,
        key: SigningKey,
        since: datetime,
        until: datetime,
        *,
        names: tuple[str, ...] = (),
        is_authority: bool = False,
    ) -> str:
        basic = _der(0x30, b"\x01\x01\xff") if is_authority else _der(0x30)
        extensions = [_extension("0603551d13", basic, is_critical=True)]
        extensions.append(_extension("0603551d0e", _der(0x04, _key_id(key))))
        # As strict clients want it.
        extensions.append(_extension("0603551d23", _der(0x30, _der(0x80, _key_id(self._key)))))
        if is_authority:
            extensions.append(_extension("0603551d0f", b"\x03\x02\x01\x06", is_critical=True))
        if names:
            extensions.append(_extension("0603551d11", _der(0x30, *map(_alternative, names))))
        public = _der(0x30, _ED25519, _der(0x03, b"\0", bytes(key.verify_key)))
        body = _der(
            0x30,
            _der(0xA0, _integer(2)),
            _integer(secrets.randbits(63) | 1),
            _ED25519,
            _name(self._name),
            _der(0x30, _time(since), _time(until)),
            _name(name),
            public,
            _der(0xA3, _der(0x30, *extensions)),
        )
        signed = _der(0x30, body, _ED25519, _der(0x03, b"\0", self._key.sign(body).signature))
        return _pem("CERTIFICATE", signed)


def write_pair(home: Path, pair: tuple[str, str]) -> None:
    """`cert.pem` and `key.pem` in the home, each in one stroke, as a renewal writes them."""
    for name, text, mode in (("cert.pem", pair[0], 0o644), ("key.pem", pair[1], 0o600)):
        made = home / f".{name}"
        made.touch(mode=mode)
        made.chmod(mode)
        made.write_text(text)
        made.replace(home / name)
