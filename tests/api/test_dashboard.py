"""The dashboard over HTTP: cookies, who may act, forged requests and headers; tests/web has its pages."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import msgspec
import pytest

from holdfast.api.contract import ADMIN, READ, Caller
from holdfast.api.security import GUESSES
from holdfast.api.tokens import Bearer, Tokens
from holdfast.config import sign_in
from holdfast.core.clock import SystemClock
from tests.api.stand_in import READ_TOKEN, TOKEN, ServedDoors, served_doors

pytestmark = pytest.mark.slow

SIGN_IN = "/dashboard/sign-in"
FORM = "application/x-www-form-urlencoded"


class Browser:
    """A client that keeps its cookies, and sends what a browser sends for a script of a page."""

    def __init__(self, house: ServedDoors) -> None:
        self.house = house
        self.http = httpx.Client(base_url=house.url, timeout=20, trust_env=False)

    def post(self, path: str, form: dict[str, str] | bytes = b"", **headers: str | None) -> httpx.Response:
        sent: dict[str, str | None] = {"origin": self.house.url, "hx-request": "true", "content-type": FORM}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        chosen = {name: value for name, value in sent.items() if value is not None}
        if isinstance(form, bytes):
            return self.http.post(path, content=form, headers=chosen)
        return self.http.post(path, data=form, headers=chosen)

    def sign_in(self, token: str = TOKEN) -> httpx.Response:
        found = self.post(SIGN_IN, {"token": token})
        assert found.status_code == 200, found.text
        return found

    @property
    def is_signed_in(self) -> bool:
        return self.http.get("/dashboard/session").status_code == 200


@pytest.fixture
def browser(house: ServedDoors) -> Iterator[Browser]:
    made = Browser(house)
    yield made
    made.http.close()


def link_code(house: ServedDoors, token: str = "operator") -> str:
    return sign_in.make_code(house.home, SystemClock().now(), token=token)


# --- sign-in


def test_a_code_becomes_a_cookie_that_scripts_and_other_sites_cannot_use(browser: Browser) -> None:
    found = browser.post(SIGN_IN, {"code": link_code(browser.house)})

    assert found.status_code == 200
    cookie = found.headers["set-cookie"]
    assert re.fullmatch(
        r"holdfast_[0-9a-f]{8}=[\w.-]+; Path=/; Max-Age=604800; HttpOnly; SameSite=Strict", cookie
    )
    assert browser.is_signed_in
    assert browser.http.get("/").status_code == 200


def test_behind_a_proxy_with_tls_the_cookie_is_secure(browser: Browser) -> None:
    origin = browser.house.url.replace("http://", "https://")

    found = browser.post(SIGN_IN, {"code": link_code(browser.house)}, origin=origin)

    assert found.status_code == 200
    assert found.headers["set-cookie"].endswith("; Secure")


def test_a_code_works_once(browser: Browser) -> None:
    code = link_code(browser.house)
    browser.post(SIGN_IN, {"code": code})

    found = browser.post(SIGN_IN, {"code": code})

    assert found.status_code == 401
    assert "holdfast dashboard" in found.json()["error"]


def test_a_wrong_token_is_refused_and_guesses_are_limited(browser: Browser) -> None:
    found = [browser.post(SIGN_IN, {"token": "x" * 64}) for _ in range(int(GUESSES) + 2)]

    assert found[0].status_code == 401
    assert found[-1].status_code == 429
    assert not browser.is_signed_in
    # The right one is never delayed.
    browser.sign_in()


def test_wrong_codes_count_as_guesses_too(browser: Browser) -> None:
    found = [browser.post(SIGN_IN, {"code": f"x{n}"}) for n in range(int(GUESSES) + 2)]

    assert found[-1].status_code == 429


def test_a_sign_in_without_anything_is_refused(browser: Browser) -> None:
    assert browser.post(SIGN_IN, {}).status_code == 401
    assert browser.post(SIGN_IN, b"\xff\xfe").status_code == 400
    assert browser.post(SIGN_IN, b"code=" + b"x" * 5000).status_code == 413
    assert browser.post(SIGN_IN, b"{}", content_type="application/json").status_code == 415


@pytest.mark.parametrize("path", ["/", "/dashboard/nothing", "/?a=1"])
def test_a_stranger_is_led_to_the_sign_in(browser: Browser, path: str) -> None:
    found = browser.http.get(path)

    assert found.status_code == 303
    assert found.headers["location"].startswith(f"{SIGN_IN}?next=%2F")


@pytest.mark.parametrize("path", ["/dashboard/live", "/dashboard/session"])
def test_a_stranger_gets_no_changes(browser: Browser, path: str) -> None:
    assert browser.http.get(path).status_code == 401


def test_signing_out_ends_the_cookie_also_where_it_was_copied(browser: Browser) -> None:
    copied = browser.sign_in().headers["set-cookie"].partition(";")[0]

    found = browser.post("/dashboard/sign-out")

    assert "Max-Age=0" in found.headers["set-cookie"]
    answer = httpx.get(f"{browser.house.url}/dashboard/session", headers={"cookie": copied})
    assert answer.status_code == 401


def test_a_cookie_ends_with_its_token(browser: Browser) -> None:
    browser.sign_in(READ_TOKEN)
    assert browser.is_signed_in

    # What a rotation does: the name stays, the token is another one.
    house = browser.house
    house.tokens._sources[:] = Tokens.of(
        TOKEN, {"another" + READ_TOKEN: Caller(who="board", scopes=frozenset({READ}))}
    )._sources
    house.tokens._refresh(is_first=True)

    assert not browser.is_signed_in


def test_a_cookie_ends_when_its_token_expires(home: Path) -> None:
    with served_doors(home) as house:
        caller = Caller(who="brief", scopes=frozenset({READ}))
        moment = SystemClock().now() + timedelta(days=1)
        house.tokens._sources[:] = Tokens.of(
            TOKEN, {"b" * 64: Bearer(caller=caller, expires_at=moment)}
        )._sources
        house.tokens._refresh(is_first=True)
        browser = Browser(house)
        browser.sign_in("b" * 64)
        assert browser.is_signed_in

        house.tokens._sources[:] = Tokens.of(
            TOKEN, {"b" * 64: Bearer(caller=caller, expires_at=SystemClock().now() - timedelta(seconds=1))}
        )._sources
        house.tokens._refresh(is_first=True)
        assert not browser.is_signed_in
        browser.http.close()


def test_a_forged_cookie_is_refused(browser: Browser) -> None:
    name, _, value = browser.sign_in(READ_TOKEN).headers["set-cookie"].partition(";")[0].partition("=")
    text, _, signature = value.partition(".")
    said = msgspec.json.decode(base64.urlsafe_b64decode(text + "=="))

    def forged(**changes: str) -> str:
        made = base64.urlsafe_b64encode(msgspec.json.encode(said | changes)).rstrip(b"=").decode()
        return f"{made}.{signature}"

    tries = [
        forged(token="operator"),
        forged(until="2999-01-01T00:00:00Z"),
        forged(id="another"),
        f"{text}.",
        f"{text}.{'A' * 43}",
        text,
        ".",
        "x" * 5000,
        "a.b\xff",
    ]
    for one in tries:
        answer = httpx.get(
            f"{browser.house.url}/dashboard/session", headers={b"cookie": f"{name}={one}".encode("latin-1")}
        )
        assert answer.status_code == 401, one
    assert browser.is_signed_in


def test_a_cookie_counts_for_pages_only(browser: Browser) -> None:
    browser.sign_in()

    assert browser.post("/rpc/gateway.status", b"{}", content_type="application/json").status_code == 401
    assert browser.http.get("/events").status_code == 401
    assert browser.http.get("/metrics").status_code == 401


def test_a_token_in_a_header_opens_no_page(house: ServedDoors) -> None:
    assert house.get("/", follow_redirects="").status_code == 303


# --- who may act


def test_a_reader_may_look_and_nothing_else(browser: Browser) -> None:
    browser.sign_in(READ_TOKEN)

    assert browser.http.get("/").status_code == 200
    assert '<button type="button" class="act' not in browser.http.get("/").text
    found = browser.post("/dashboard/do/gateway.restart", {"reason": "x"})
    assert found.status_code == 403
    assert "operator.admin" in found.json()["error"]
    assert browser.house.gateway.wishes == []


def test_an_action_is_done_with_the_name_of_the_token(browser: Browser) -> None:
    browser.post(SIGN_IN, {"code": link_code(browser.house)})

    found = browser.post("/dashboard/do/gateway.restart", {"reason": "new version"})

    assert found.status_code == 200
    (wish,) = browser.house.gateway.wishes
    assert (wish.reason, wish.triggered_by) == ("new version", "operator (dashboard)")


def test_a_link_for_a_token_that_does_not_exist_is_refused(browser: Browser) -> None:
    assert browser.post(SIGN_IN, {"code": link_code(browser.house, "missing")}).status_code == 401


def test_a_link_is_made_on_the_own_host_only(house: ServedDoors) -> None:
    found = house.post("dashboard.link")

    assert found.status_code == 403
    assert ADMIN.startswith("operator.")


# --- forged requests


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": None}, 403),
        ({"origin": "null"}, 403),
        ({"hx_request": None}, 403),
        ({"host": "evil.example"}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "multipart/form-data; boundary=x"}, 415),
    ],
)
def test_a_request_that_no_page_of_ours_made_does_nothing(
    browser: Browser, headers: dict[str, str | None], status: int
) -> None:
    browser.sign_in()

    assert browser.post("/dashboard/do/gateway.restart", {"reason": "x"}, **headers).status_code == status
    assert browser.house.gateway.wishes == []


@pytest.mark.parametrize("path", ["/dashboard/do/gateway.restart", "/dashboard/sign-out"])
def test_to_look_changes_nothing(browser: Browser, path: str) -> None:
    browser.sign_in()

    assert browser.http.get(path).status_code in (404, 405)
    assert browser.house.gateway.wishes == []
    assert browser.is_signed_in


def test_unknown_actions_and_unreadable_forms_are_refused(browser: Browser) -> None:
    browser.sign_in()

    assert browser.post("/dashboard/do/nothing", {}).status_code == 404
    assert browser.post("/dashboard/do/gateway.restart", b"reason=%ff&" + b"a=1&" * 200).status_code == 400
    assert browser.post("/dashboard/do/gateway.restart", b"reason=" + b"x" * 2**21).status_code == 413


# --- headers


def test_a_page_allows_nothing_from_elsewhere(browser: Browser) -> None:
    browser.sign_in()

    for path in ("/", SIGN_IN, "/dashboard/nothing"):
        found = browser.http.get(path)
        policy = found.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["referrer-policy"] == "no-referrer"
        assert found.headers["cache-control"] == "no-store"


def test_files_are_kept_by_their_digest_and_no_other_file_can_be_named(browser: Browser) -> None:
    page = browser.http.get(SIGN_IN).text
    addresses = re.findall(r'"(/dashboard/static/[^"]+)"', page)
    assert addresses
    for address in addresses:
        found = browser.http.get(address)
        assert found.status_code == 200
        assert "immutable" in found.headers["cache-control"]
    changed = browser.http.get(addresses[0].partition("?")[0])
    assert changed.headers["cache-control"] == "no-cache"
    for path in ("../dashboard.py", "..%2fdashboard.py", "%2e%2e/__init__.py", "", "nothing.css"):
        assert browser.http.get(f"/dashboard/static/{path}").status_code in (303, 404)


# --- the audit log


def test_sign_ins_refusals_and_sign_outs_are_in_the_audit_log(browser: Browser) -> None:
    browser.post(SIGN_IN, {"code": "wrong"})
    browser.post(SIGN_IN, {"token": "x" * 64})
    browser.sign_in(READ_TOKEN)
    browser.post("/dashboard/sign-out")
    house = browser.house
    asyncio.run(house.gateway.audit.run_once())

    found = house.post("audit.list").json()["entries"]

    said = [(one["who"], one["action"], one["outcome"], one["times"]) for one in reversed(found)]
    assert ("board (dashboard)", "dashboard.sign_in", "done", 1) in said
    assert ("board (dashboard)", "dashboard.sign_out", "done", 1) in said
    assert ("stranger", "dashboard.sign_in", "refused", 2) in said
