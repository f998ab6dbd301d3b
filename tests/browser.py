"""A real browser without a window, for tests of pages."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.patience import wait_until

if TYPE_CHECKING:
    from selenium import webdriver

ESCAPE, ENTER, TAB, SHIFT, CONTROL = "\ue00c", "\ue007", "\ue004", "\ue008", "\ue009"
CONTRASTS = """(() => {
  const rgb = (text) => {
    const found = text.match(/[\\d.]+/g).map(Number);
    const scale = text.startsWith("color(") ? 255 : 1;
    return [...found.slice(0, 3).map((part) => part * scale), found[3] ?? 1];
  };
  const light = ([r, g, b]) => {
    const part = (x) => ((x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ground = (element) => {
    for (let at = element; at !== null; at = at.parentElement) {
      const color = rgb(getComputedStyle(at).backgroundColor);
      if (color[3] === 1) return color;
    }
    return [255, 255, 255, 1];
  };
  const ratio = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const found = [];
  for (const element of document.querySelectorAll("body *:not(script):not(noscript):not(option)")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim() !== "");
    if (!own || element.closest("svg, [hidden], noscript") || element.getClientRects().length === 0) continue;
    const what = element.className || element.tagName;
    found.push([ratio(rgb(getComputedStyle(element).color), ground(element)), what, element.textContent.slice(0, 20)]);
  }
  for (const bar of document.querySelectorAll(".bar:not(.expected)")) {
    const [rect, text] = [bar.querySelector("rect"), bar.querySelector("text")];
    if (text.textContent === "") continue;
    const found_ratio = ratio(rgb(getComputedStyle(text).fill), rgb(getComputedStyle(rect).fill));
    found.push([found_ratio, bar.getAttribute("class"), text.textContent]);
  }
  return found.filter(([found]) => found < 4.5);
})()"""
"""text that stands out less than WCAG 2.2 asks for: contrast, what it is, the text"""
UNNAMED = """[...document.querySelectorAll(
    "button, a, input, select, textarea, progress, [role=img], [role=button], [tabindex='0']")]
  .filter((one) => one.getClientRects().length > 0)
  .filter((one) => !(one.getAttribute('aria-label') || one.getAttribute('aria-labelledby') || one.textContent.trim()
    || one.labels?.length)).map((one) => one.outerHTML)"""
"""controls of which a screen reader would say nothing"""
FLAGS = (
    "headless=new no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
    "disable-component-update disable-sync disable-dev-shm-usage force-device-scale-factor=1 hide-scrollbars"
)


class Browser:
    """A browser with one page.

    Args:
        driver: of it
    """

    def __init__(self, driver: "webdriver.Chrome") -> None:
        self.driver = driver

    def view(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Have the page so wide and high [pixels], on a system whose colours are light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def leave(self) -> None:
        """Leave the page: nothing of it asks its server any more."""
        self.driver.get("about:blank")

    def open(self, url: str) -> None:
        self.leave()
        self.driver.get(url)

    def js(self, expression: str, *arguments: Any) -> Any:
        return self.driver.execute_script(f"return {expression}", *arguments)

    def wait(self, expression: str, *arguments: Any) -> None:
        wait_until(lambda: bool(self.js(expression, *arguments)), f"in the page it must become so: {expression}", 20.0)

    def text(self, selector: str) -> str:
        return str(self.js("document.querySelector(arguments[0])?.textContent ?? ''", selector))

    def click(self, selector: str) -> None:
        """Click on the first element that a selector finds, as somebody with a mouse does."""
        self.driver.find_element("css selector", selector).click()

    def choose(self, selector: str, value: str) -> None:
        from selenium.webdriver.support.ui import Select

        Select(self.driver.find_element("css selector", selector)).select_by_value(value)

    def keys(self, *keys: str) -> None:
        """Press keys, one after the other, wherever the focus is."""
        from selenium import webdriver

        chain = webdriver.ActionChains(self.driver)
        for key in keys:
            chain.send_keys(key)
        chain.perform()

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Chromium, driven by chromedriver. Where there is none, tests are skipped."""
    pytest.importorskip("selenium")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    driver_path = shutil.which("chromedriver")
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    if driver_path is None or browser_path is None:
        pytest.skip("Chromium and chromedriver are not installed")
    profile = tempfile.mkdtemp(prefix="cstool_browser_")
    options = webdriver.ChromeOptions()
    options.binary_location = browser_path
    for flag in (*FLAGS.split(), f"user-data-dir={profile}", "window-size=1280,900"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    try:
        driver = webdriver.Chrome(options, Service(driver_path))
        try:
            yield Browser(driver)
        finally:
            driver.quit()
    finally:
        shutil.rmtree(profile, ignore_errors=True)
