"""Visit: one person at the dashboard, with the steps that tests take there."""

from __future__ import annotations

from pathlib import Path

from axe_playwright_python.base import AxeResults
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.web.gateways import LiveGateway

# On a page with more elements, the contrast of each text costs more than all other rules together.
LARGE = 500
# So there it is asked of one of all texts that look alike: they, and all that they stand in, have the same
# names, colours and sizes. What is placed by coordinates may cover something, so it is like no other.
ONE_OF_EACH_LOOK = """() => {
    const looks = new Map(), ones = new Map();
    const look = (one) => {
        if (one === null || one === document.documentElement) return "";
        if (looks.has(one)) return looks.get(one);
        const style = getComputedStyle(one);
        const isFlowing = ["static", "relative"].includes(style.position) && style.transform === "none";
        const own = [one.tagName, one.getAttribute("class"), style.color, style.backgroundColor,
            style.backgroundImage, style.opacity, style.fontSize, style.fontWeight, style.textShadow,
            style.filter, style.visibility, isFlowing ? "" : looks.size];
        const found = look(one.parentElement) + own.join("|") + "/";
        looks.set(one, found);
        return found;
    };
    for (const one of document.body.querySelectorAll("*")) {
        const isText = [...one.childNodes].some((part) => part.nodeType === 3 && part.data.trim());
        if (isText || ["INPUT", "SELECT", "TEXTAREA"].includes(one.tagName)) {
            if (!ones.has(look(one))) ones.set(look(one), one);
        }
    }
    return [...ones.values()];
}"""
RUN = """axe.run({resultTypes: ["violations"]})"""
RUN_WITHOUT_CONTRAST = (
    """axe.run({resultTypes: ["violations"], rules: {"color-contrast": {enabled: false}}})"""
)
RUN_ON_LOOKS = f"""axe.run(({ONE_OF_EACH_LOOK})(), {{resultTypes: ["violations"], runOnly: %s}})"""


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
        if self.page.locator("*").count() < LARGE:
            self._finds_nothing(RUN)
        else:
            self._finds_nothing(RUN_WITHOUT_CONTRAST)
            self._finds_nothing(RUN_ON_LOOKS % ["color-contrast"])

    def can_be_read(self) -> None:
        """The part of it that depends on the colours."""
        self._finds_nothing(RUN_ON_LOOKS % ["color-contrast", "link-in-text-block"])

    def _finds_nothing(self, run: str) -> None:
        if not self.page.evaluate("() => Boolean(window.axe)"):
            self.page.evaluate(Axe().axe_script)
        found = AxeResults(self.page.evaluate(run))
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
