"""Which address a request counts for, directly and through proxies."""

from __future__ import annotations

import ipaddress

import pytest

from holdfast.api.peers import UNKNOWN, counted, networks_of, peer_of

pytestmark = pytest.mark.slow

PROXIES = networks_of(["10.0.0.1", "192.168.0.0/16", "2001:db8:1::/48"])


def seen_from(direct: str | None, *headers: tuple[str, str]) -> str:
    sent = [(name.lower().encode(), value.encode()) for name, value in headers]
    client = None if direct is None else (direct, 1234)
    return peer_of({"client": client, "headers": sent}, PROXIES)


@pytest.mark.parametrize(
    ("address", "as_one"),
    [
        ("127.0.0.1", "127.0.0.0/8"),
        ("127.200.3.4", "127.0.0.0/8"),
        ("203.0.113.9", "203.0.113.9"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("::1", "::/64"),
    ],
)
def test_addresses_that_one_caller_can_choose_from_count_as_one(address: str, as_one: str) -> None:
    assert counted(ipaddress.ip_address(address)) == as_one
    assert seen_from(address) == as_one


@pytest.mark.parametrize(
    ("mapped", "as_one"), [("::ffff:127.0.0.9", "127.0.0.0/8"), ("::ffff:203.0.113.9", "203.0.113.9")]
)
def test_an_ipv4_address_inside_an_ipv6_one_is_the_ipv4_address(mapped: str, as_one: str) -> None:
    assert seen_from(mapped) == as_one


def test_a_caller_without_an_address_has_one_name() -> None:
    assert seen_from(None) == seen_from("testclient") == UNKNOWN


def test_a_header_of_a_caller_that_is_no_proxy_of_ours_says_nothing() -> None:
    spoofed = [("X-Forwarded-For", "198.51.100.7"), ("Forwarded", "for=198.51.100.7")]

    assert seen_from("203.0.113.9", *spoofed) == "203.0.113.9"


@pytest.mark.parametrize(
    ("header", "as_one"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("1.1.1.1, 198.51.100.7", "198.51.100.7"),
        ("1.1.1.1, 198.51.100.7, 192.168.3.4", "198.51.100.7"),
        ("192.168.3.4, 10.0.0.1", "192.168.3.4"),
        ("198.51.100.7:4711", "198.51.100.7"),
        ("[2001:db8::7]:4711", "2001:db8::/64"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("1.1.1.1, unknown", "10.0.0.1"),
        ("1.1.1.1, no address, 192.168.3.4", "192.168.3.4"),
        ("1.1.1.1,", "10.0.0.1"),
        ("", "10.0.0.1"),
    ],
)
def test_through_a_trusted_proxy_the_right_most_hop_that_is_no_proxy_counts(header: str, as_one: str) -> None:
    assert seen_from("10.0.0.1", ("X-Forwarded-For", header)) == as_one


@pytest.mark.parametrize(
    ("header", "as_one"),
    [
        ("for=198.51.100.7", "198.51.100.7"),
        ('For="[2001:db8::7]:4711";proto=https', "2001:db8::/64"),
        ("by=10.0.0.1;for=198.51.100.7;proto=http", "198.51.100.7"),
        ("for=1.1.1.1, for=198.51.100.7, for=192.168.3.4", "198.51.100.7"),
        ("for=_hidden", "10.0.0.1"),
        ("for=1.1.1.1, proto=http", "10.0.0.1"),
        ('for="1.1.1.1', "10.0.0.1"),
        ("xfor=1.1.1.1", "10.0.0.1"),
    ],
)
def test_the_standard_header_is_read_like_the_older_one(header: str, as_one: str) -> None:
    assert seen_from("10.0.0.1", ("Forwarded", header)) == as_one


def test_several_headers_of_one_name_are_one_list() -> None:
    hops = [("X-Forwarded-For", "1.1.1.1"), ("X-Forwarded-For", "198.51.100.7")]

    assert seen_from("10.0.0.1", *hops) == "198.51.100.7"


def test_two_headers_that_disagree_are_not_believed_because_a_client_may_have_written_one() -> None:
    made_up = ("Forwarded", "for=1.1.1.1")

    assert seen_from("10.0.0.1", ("X-Forwarded-For", "198.51.100.7"), made_up) == "10.0.0.1"
    assert seen_from("10.0.0.1", ("X-Forwarded-For", "1.1.1.1"), made_up) == "1.1.1.1"


def test_a_proxy_reached_over_a_mapped_address_is_trusted() -> None:
    assert seen_from("::ffff:10.0.0.1", ("X-Forwarded-For", "198.51.100.7")) == "198.51.100.7"
