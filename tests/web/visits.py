"""Visit: one person at the dashboard, with the steps that tests take there."""

from __future__ import annotations

from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.web.gateways import LiveGateway


class Filled:
    """The gateway of the sample home, and the ids of what is in it, by name."""

    def __init__(self, gateway: LiveGateway, ids: dict[str, str]) -> None:
        self.gateway = gateway
        self.ids = ids


class Visit:
    """One browser at one gateway."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url

    def goto(self, path: str) -> None:
        self.page.goto(f"{self.url}{path}")
        self.is_live()

    def is_live(self) -> None:
        expect(self.page.locator("#live-state")).to_have_text("live")

    def act(self, button: str, *, within: str = "#live", confirm: str, **fields: str) -> str:
        """Press a button, fill in its dialog, and confirm; returns what the page says then."""
        self.page.locator(within).get_by_role("button", name=button, exact=True).first.click()
        dialog = self.page.locator("#dialog")
        expect(dialog).to_be_visible()
        for name, value in fields.items():
            field = dialog.locator(f"[name={name}]")
            if field.first.get_attribute("type") == "radio":
                dialog.locator(f"[name={name}][value='{value}']").check()
            elif field.get_attribute("type") == "checkbox":
                field.check()
            else:
                field.fill(value)
        dialog.get_by_role("button", name=confirm, exact=True).click()
        expect(dialog).to_be_hidden()
        return self.page.locator("#toasts .toast").last.inner_text()

    # --- what every page must be

    def is_accessible(self) -> None:
        found = Axe().run(self.page)
        assert found.violations_count == 0, found.generate_report()

    def can_be_read(self) -> None:
        """The part of it that depends on the colours."""
        rules = ["color-contrast", "link-in-text-block"]
        found = Axe().run(self.page, options={"resultTypes": ["violations"], "runOnly": rules})
        assert found.violations_count == 0, found.generate_report()

    def fits(self) -> None:
        """Nothing scrolls sideways, and no text is cut off by the edge of its box."""
        wide = self.page.evaluate(
            "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert wide <= 0, f"{self.page.url} is {wide} px wider than the window"

    def shoot(self, folder: Path | None, name: str) -> None:
        if folder is not None:
            self.page.screenshot(path=folder / f"{name}.png", full_page=True)
