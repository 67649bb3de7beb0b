"""The client address for rate limits: loopback and an IPv6 /64 count as one, trusted proxies forward."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

UNKNOWN = "unknown"
# One machine usually owns a whole /64, and may use any address in it.
_LOOPBACK = ipaddress.IPv4Network("127.0.0.0/8")
_SITE_BITS = 64
_FORWARDED_FOR = re.compile(r'(?:^|;)\s*for\s*=\s*(?:"([^"]*)"|([^;"\s]*))\s*(?=;|$)', re.IGNORECASE)
_WITH_PORT = re.compile(r"\[([^\]]+)\](?::\d{1,5})?|([0-9.]+):\d{1,5}")


def networks_of(texts: Iterable[str]) -> list[Network]:
    """Parse addresses and networks from the settings. Raises ValueError."""
    return [ipaddress.ip_network(text) for text in texts]


def peer_of(scope: Mapping[str, Any], trusted: Sequence[Network]) -> str:
    """The address that a request is counted under."""
    found = address_of(scope, trusted)
    return UNKNOWN if found is None else counted(found)


def address_of(scope: Mapping[str, Any], trusted: Sequence[Network]) -> Address | None:
    """The client's address; None if it is not known.

    A forwarding header counts only from a trusted proxy. The right-most hop that is not a trusted proxy is
    the client: anything to the left of it was written by the client itself.
    """
    client = scope.get("client")
    direct = None if client is None else _address(str(client[0]))
    if direct is None or not _is_in(direct, trusted):
        return direct
    headers = scope.get("headers", ())
    told = {
        _last_untrusted(direct, hops, trusted)
        for hops in (_x_forwarded_for(headers), _forwarded(headers))
        if hops
    }
    # A proxy sets one of the two headers, and may pass on a forged copy of the other.
    return told.pop() if len(told) == 1 else direct


def counted(address: Address) -> str:
    """Map all addresses that one client can choose from to one key."""
    if address.version == 4:
        return str(_LOOPBACK if address in _LOOPBACK else address)
    return str(ipaddress.ip_network((int(address), _SITE_BITS), strict=False))


def _last_untrusted(direct: Address, hops: Sequence[str], trusted: Sequence[Network]) -> Address:
    nearest = direct
    for hop in reversed(hops):
        found = _address(hop)
        if found is None:
            return nearest  # hidden or malformed: fall back to the proxy's address
        nearest = found
        if not _is_in(found, trusted):
            break
    return nearest


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def _address(text: str) -> Address | None:
    """Parse an address; map IPv4-in-IPv6 to IPv4, and drop a port and a zone."""
    text = text.strip()
    if (with_port := _WITH_PORT.fullmatch(text)) is not None:
        text = with_port[1] or with_port[2]
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if found.version == 6 and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


def _x_forwarded_for(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    return _listed(headers, b"x-forwarded-for")


def _forwarded(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """The hops of RFC 7239; an element without a client is an unknown hop."""
    hops = []
    for element in _listed(headers, b"forwarded"):
        found = _FORWARDED_FOR.search(element)
        hops.append("" if found is None else found[1] or found[2] or "")
    return hops


def _listed(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    values = [value.decode("latin-1") for header, value in headers if header == name]
    return ",".join(values).split(",") if values else []
