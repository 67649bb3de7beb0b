"""Fixtures for the dashboard: a browser, a sample gateway, and pages that must stay clean."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    Playwright,
    Request,
    sync_playwright,
)

from tests.web.browsers import HOW, find_browser, flags
from tests.web.gateways import LiveGateway
from tests.web.sample_home import fill, make_home
from tests.web.visits import Filled, Visit

# Where screenshots are kept, for a person to look at; without it none is taken.
SCREENSHOTS = "HOLDFAST_SCREENSHOTS"
PATIENCE_MS = 20_000
HERE = Path(__file__).parent


class OneBrowser:
    """The browser that the tests of this folder share, open from the first of them to the last."""

    def __init__(self) -> None:
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._signed_in: dict[str, BrowserContext] = {}
        self._tabs: dict[str, Page] = {}

    def new_context(self) -> BrowserContext:
        context = self._open().new_context(locale="en-GB", timezone_id="Europe/Berlin")
        context.set_default_timeout(PATIENCE_MS)
        return context

    def signed_in(self, gateway: LiveGateway) -> BrowserContext:
        """A context that tests use one after another: it has the script and the style of a page already.

        What a test leaves in it, apart from its pages, is no more than the browser's own storage.
        """
        name, value = gateway.sign_in()
        context = self._signed_in.get(gateway.url) or self.new_context()
        self._signed_in[gateway.url] = context
        context.clear_cookies()
        context.add_cookies([{"name": name, "value": value, "url": gateway.url}])
        return context

    def tab(self, gateway: LiveGateway) -> Page:
        """One that tests use one after another: it need not be made, and has read the script before."""
        context = self.signed_in(gateway)
        if gateway.url not in self._tabs:
            self._tabs[gateway.url] = context.new_page()
        return self._tabs[gateway.url]

    def _open(self) -> Browser:
        if self._browser is None:
            program = find_browser()
            if program is None:
                pytest.fail(HOW)
            self._playwright = sync_playwright().start()
            self._browser = self._playwright.chromium.launch(executable_path=program, args=flags())
        return self._browser

    def close(self) -> None:
        if self._browser is not None and self._playwright is not None:
            self._browser.close()
            self._playwright.stop()
        self._browser = self._playwright = None
        self._signed_in.clear()
        self._tabs.clear()


_one_browser = pytest.StashKey[OneBrowser]()


@pytest.fixture
def browser(request: pytest.FixtureRequest) -> OneBrowser:
    return request.config.stash.setdefault(_one_browser, OneBrowser())


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Close the browser before a test of another folder: Playwright's event loop runs in this thread,
    and beside it no test can call asyncio.run."""
    if nextitem is None or HERE not in nextitem.path.parents:
        item.config.stash.setdefault(_one_browser, OneBrowser()).close()


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A gateway with something of everything. Tests only look at it, or change what they made themselves."""
    home = make_home(tmp_path_factory.mktemp("web", numbered=True) / "home")
    with LiveGateway(home) as gateway:
        gateway.is_shared = True
        yield Filled(gateway, fill(gateway))


@pytest.fixture
def own(tmp_path: Path, visits: Visits) -> Iterator[LiveGateway]:
    """A gateway of the test's own, to be killed and restarted."""
    with LiveGateway(make_home(tmp_path / "home")) as gateway:
        yield gateway
        # A page whose gateway ends says so in its console.
        visits.close()


@pytest.fixture
def screenshots() -> Path | None:
    named = os.environ.get(SCREENSHOTS)
    if not named:
        return None
    folder = Path(named)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def visits(browser: OneBrowser) -> Iterator[Visits]:
    """Opens pages as signed-in visitors; in the end each must have stayed clean."""
    made = Visits(browser)
    yield made
    made.close()


def _forget(page: Page) -> None:
    """Nothing that the page has stored in the browser is there for the next test."""
    if page.url.startswith("http"):
        page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")


def _forget_and_close(page: Page) -> None:
    _forget(page)
    page.close()


def _forget_and_leave(page: Page, gateway: LiveGateway) -> None:
    """To where nothing runs, but at the same gateway: for another one the browser starts a process anew."""
    page.unroute_all()
    _forget(page)
    page.goto(f"{gateway.url}/dashboard/static/theme.js")


class Visits:
    """The pages of one test, and all that went wrong in them."""

    def __init__(self, browser: OneBrowser) -> None:
        self._browser = browser
        # What ends with the test: a context that it shares with others stays, without its page.
        self._closes: list[Callable[[], None]] = []
        self._no_longer: list[Callable[[], None]] = []
        self.wrong: list[str] = []
        # What a test brings about on purpose, such as a gateway that is away.
        self.expected: list[str] = []

    def sign_in(
        self,
        gateway: LiveGateway,
        *,
        link: str | None = None,
        theme: str = "light",
        width: int = 1280,
        height: int = 900,
        fresh: bool = False,
    ) -> Visit:
        """A visitor who came in by this link; without a link, one who is signed in and has opened no page.

        At the gateway that tests share they share a tab, too; `fresh`: not one that would keep a script or a
        clock of this test.
        """
        if link is None and gateway.is_shared and not fresh and not self._closes:
            page = self._browser.tab(gateway)
            self._closes.append(partial(_forget_and_leave, page, gateway))
            return self._watched(page, gateway.url, theme=theme, width=width, height=height)
        if link is None:
            page = self._browser.signed_in(gateway).new_page()
            self._closes.append(partial(_forget_and_close, page))
            return self._watched(page, gateway.url, theme=theme, width=width, height=height)
        visit = self.open(gateway.url, theme=theme, width=width, height=height)
        visit.page.goto(link)
        visit.page.wait_for_url(f"{gateway.url}/")
        visit.is_live()
        return visit

    def open(self, url: str, *, theme: str = "light", width: int = 1280, height: int = 900) -> Visit:
        """A new browser, which no gateway knows."""
        context = self._browser.new_context()
        self._closes.append(context.close)
        return self._watched(context.new_page(), url, theme=theme, width=width, height=height)

    def _watched(self, page: Page, url: str, *, theme: str, width: int, height: int) -> Visit:
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        page.set_viewport_size({"width": width, "height": height})
        self._watch(page, url)
        return Visit(page, url)

    def _watch(self, page: Page, url: str) -> None:
        ours = urlsplit(url).netloc

        def heard(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                self.wrong.append(f"{message.type} in the console of {page.url}: {message.text}")

        def asked(request: Request) -> None:
            parts = urlsplit(request.url)
            if parts.scheme not in ("data", "blob") and parts.netloc != ours:
                self.wrong.append(f"{page.url} asked {request.url}")

        def failed(error: Error) -> None:
            self.wrong.append(f"error on {page.url}: {error}")

        page.on("console", heard)
        page.on("request", asked)
        page.on("pageerror", failed)

        def no_longer() -> None:
            page.remove_listener("console", heard)
            page.remove_listener("request", asked)
            page.remove_listener("pageerror", failed)

        self._no_longer.append(no_longer)

    def close(self) -> None:
        for close in [*self._no_longer, *self._closes]:
            close()
        self._closes.clear()
        self._no_longer.clear()
        left = [one for one in self.wrong if not any(words in one for words in self.expected)]
        assert left == []
