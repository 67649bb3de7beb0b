"""Which addresses a tool may connect to: those of the public internet, unless its caller allows others."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any, NamedTuple

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# Everything else of IPv6 is local, reserved, or stands for an IPv4 address.
_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Private since RFC 8215; older releases of Python take it for reserved.
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")
# Public by their number, and yet a part of the network that the machine is in: the platform of Azure, which
# hands out credentials, and the relays of 6to4.
_NOT_PUBLIC = (ipaddress.IPv4Network("168.63.129.16/32"), ipaddress.IPv4Network("192.88.99.0/24"))


class Address(NamedTuple):
    """One address of a host, ready to be connected to."""

    family: socket.AddressFamily
    kind: socket.SocketKind
    protocol: int
    place: tuple[Any, ...]

    @property
    def ip(self) -> str:
        return str(self.place[0])


def resolve(host: str, port: int) -> list[Address]:
    """Every address of the host, in the order of the system's choice. Raises OSError, UnicodeError.

    A number in any spelling (127.1, 0x7f000001, 2130706433) is an address, too.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [Address(family, kind, protocol, place) for family, kind, protocol, _, place in found]


def why_private(text: str) -> str | None:
    """What kind of address it is that is not of the public internet; None for a public one."""
    try:
        ip: IPAddress = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "no address that is known"
    inner = _embedded(ip)
    return _kind(ip if inner is None else inner)


def _embedded(ip: IPAddress) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address leads to: mapped, 6to4, or through NAT64."""
    if isinstance(ip, ipaddress.IPv4Address):
        return None
    if ip in _NAT64:
        return ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
    return ip.ipv4_mapped or ip.sixtofour


def _kind(ip: IPAddress) -> str | None:
    kinds = (
        ("unspecified", ip.is_unspecified),
        ("loopback", ip.is_loopback),
        ("link-local", ip.is_link_local),
        ("multicast", ip.is_multicast),
        ("private", ip.is_private or ip in _LOCAL_NAT64),
        ("reserved", ip.is_reserved or not ip.is_global),
    )
    for kind, is_so in kinds:
        if is_so:
            return kind
    if isinstance(ip, ipaddress.IPv6Address):
        # Teredo carries an IPv4 address, and through it anything.
        return "reserved" if ip not in _UNICAST or ip.teredo is not None else None
    return "reserved" if any(ip in network for network in _NOT_PUBLIC) else None


def connect(addresses: list[Address], timeout_s: float) -> socket.socket:
    """A connection to the first of these addresses that takes it. Raises the last OSError."""
    problem: OSError | None = None
    for address in addresses:
        one = socket.socket(address.family, address.kind, address.protocol)
        try:
            one.settimeout(timeout_s)
            one.connect(address.place)
        except OSError as error:
            one.close()
            problem = error
        else:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return one
    raise problem or OSError("the host has no address")
