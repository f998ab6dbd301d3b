"""A real browser without a window: Chromium, driven by chromedriver. Where there is none, tests are skipped."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.patience import wait_until

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

_FLAGS = (
    "headless=new no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
    "disable-component-update disable-sync disable-dev-shm-usage force-device-scale-factor=1 hide-scrollbars"
)


class Browser:
    """A browser with one page.

    Args:
        driver: of it
    """

    def __init__(self, driver: Chrome) -> None:
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
        from selenium.webdriver import ActionChains

        chain = ActionChains(self.driver)
        for key in keys:
            chain.send_keys(key)
        chain.perform()

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextmanager
def started_browser() -> Iterator[Browser]:
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    driver_path = shutil.which("chromedriver")
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    if driver_path is None or browser_path is None:
        pytest.skip("Chromium and chromedriver are not installed")
    profile = tempfile.mkdtemp(prefix="cstool_browser_")
    options = webdriver.ChromeOptions()
    options.binary_location = browser_path
    for flag in (*_FLAGS.split(), f"user-data-dir={profile}", "window-size=1280,900"):
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
