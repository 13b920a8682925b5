"""A headless Chromium, driven over its DevTools protocol.

with Browser() as browser:
    browser.open("file:///tmp/report.html", width=390, height=800, dark=True)
    browser.run("document.title")
    browser.press("ArrowRight")
"""

import asyncio
import itertools
import pathlib
import shutil
import subprocess
import tempfile
import time
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars")
_FLAGS += ("--remote-debugging-port=0", "--disable-dev-shm-usage", "--disable-extensions")
# Codes of keys that type nothing.
_KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Escape": 27, "Tab": 9}


class Browser:
    """One browser with one page; `complaints` are errors of pages, `requests` their URLs."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        self._numbers, self._loop = itertools.count(1), asyncio.new_event_loop()
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def __enter__(self) -> "Browser":
        command = [CHROMIUM, *_FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._loop.run_until_complete(self._connect())
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self._loop.run_until_complete(self._session.close())
        self._process.terminate()
        self._process.wait(240)
        self._loop.close()
        self._folder.cleanup()

    async def _connect(self) -> None:
        port = pathlib.Path(self._folder.name) / "DevToolsActivePort"
        deadline = time.monotonic() + 240
        while not port.exists() or len(port.read_text().splitlines()) < 2:
            if time.monotonic() > deadline:
                raise TimeoutError("Chromium did not start.")
            await asyncio.sleep(0.05)
        address = f"http://127.0.0.1:{port.read_text().splitlines()[0]}/json"
        self._session = aiohttp.ClientSession()
        async with self._session.get(address) as answer:
            pages = [page for page in await answer.json() if page["type"] == "page"]
        url = pages[0]["webSocketDebuggerUrl"]
        self._socket = await self._session.ws_connect(url, max_msg_size=0)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._loop.run_until_complete(self._ask(method, parameters))

    async def _ask(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message = await self._socket.receive_json(timeout=240)
            self._note(message)
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    def _note(self, message: dict[str, Any]) -> None:
        method, details = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(details["exceptionDetails"]))
        elif method == "Log.entryAdded" and details["entry"]["level"] == "error":
            self.complaints.append(details["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])

    def open(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a page and wait until its script has drawn it."""
        look = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setEmulatedMedia", features=look)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        self._call("Page.navigate", url="about:blank")
        self._call("Page.navigate", url=url)
        self.wait("document.documentElement?.dataset.ready === 'true'")
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def wait(self, condition: str, seconds: float = 240.0) -> None:
        """Wait until a condition of the page holds."""
        deadline = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < deadline, f"timed out: {condition}"
            time.sleep(0.05)

    def run(self, script: str) -> Any:
        """Return the value of a script in the page."""
        answer = self._call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key that types nothing."""
        code = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        for kind in ("rawKeyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, **code)

    def point(self, x: float, y: float) -> None:
        """Move the mouse to a point of the window."""
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
