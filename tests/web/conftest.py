"""Fixtures for the dashboard: a browser, a sample gateway, and pages that must stay clean."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Playwright,
    Request,
    sync_playwright,
)

from tests.web.browsers import HOW, find_browser, flags
from tests.web.gateways import LiveGateway
from tests.web.sample_home import fill, make_home
from tests.web.visits import Filled, Visit

# Where screenshots are kept, for a person to look at; by default they go with the test's own folder.
SCREENSHOTS = "HOLDFAST_SCREENSHOTS"
PATIENCE_MS = 20_000
HERE = Path(__file__).parent


class OneBrowser:
    """The browser that the tests of this folder share, open from the first of them to the last."""

    def __init__(self) -> None:
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None

    def open(self) -> Browser:
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


_one_browser = pytest.StashKey[OneBrowser]()


@pytest.fixture
def browser(request: pytest.FixtureRequest) -> Browser:
    return request.config.stash.setdefault(_one_browser, OneBrowser()).open()


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
        yield Filled(gateway, fill(gateway))


@pytest.fixture
def own(tmp_path: Path, visits: Visits) -> Iterator[LiveGateway]:
    """A gateway of the test's own, to be killed and restarted."""
    with LiveGateway(make_home(tmp_path / "home")) as gateway:
        yield gateway
        # A page whose gateway ends says so in its console.
        visits.close()


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    named = os.environ.get(SCREENSHOTS)
    folder = Path(named) if named else tmp_path / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def visits(browser: Browser) -> Iterator[Visits]:
    """Opens pages as signed-in visitors; in the end each must have stayed clean."""
    made = Visits(browser)
    yield made
    made.close()


class Visits:
    """The browser contexts of one test, and all that went wrong in them."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
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
    ) -> Visit:
        """A new browser that has come in by a link."""
        visit = self.open(gateway.url, theme=theme, width=width, height=height)
        visit.page.goto(link or gateway.new_link())
        visit.page.wait_for_url(f"{gateway.url}/")
        visit.is_live()
        return visit

    def open(self, url: str, *, theme: str = "light", width: int = 1280, height: int = 900) -> Visit:
        context = self._browser.new_context(
            color_scheme="dark" if theme == "dark" else "light",
            viewport={"width": width, "height": height},
            locale="en-GB",
            timezone_id="Europe/Berlin",
        )
        self._contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
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

        page.on("console", heard)
        page.on("request", asked)
        page.on("pageerror", lambda error: self.wrong.append(f"error on {page.url}: {error}"))

    def close(self) -> None:
        for context in self._contexts:
            context.close()
        self._contexts.clear()
        left = [one for one in self.wrong if not any(words in one for words in self.expected)]
        assert left == []
