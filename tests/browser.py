"""Headless Chromium driven over its debugging pipe: no package, no port, and all it complains of is kept."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# The browser reads commands from descriptor 3 and writes to 4; by way of higher ones, so that none is overwritten.
LAUNCH = (
    "import fcntl, os, sys\n"
    "ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]\n"
    "os.dup2(ends[0], 3); os.dup2(ends[1], 4)\n"
    "os.execv(sys.argv[3], sys.argv[3:])"
)

OVERFLOW = """[...document.querySelectorAll('body *')].filter((node) => !node.closest('.scroll, .skip, #tip') &&
    node.getBoundingClientRect().right > innerWidth + 1).map((node) => node.outerHTML.slice(0, 200))"""
CUT_OFF = """[...document.querySelectorAll('svg[viewBox] text')].filter((node) => {
    const [a, b] = [node.getBoundingClientRect(), node.ownerSVGElement.getBoundingClientRect()];
    return b.width && (a.left < b.left - 1 || a.right > b.right + 1 || a.bottom > b.bottom + 1);
}).map((node) => node.textContent)"""
OVERLAPS = """[...document.querySelectorAll('svg[viewBox]')].flatMap((svg) => {
    const places = (kind) => [...svg.querySelectorAll(kind)].map((node) => [node.textContent || kind,
        node.getBoundingClientRect()]);
    const found = places('text');
    return found.flatMap(([name, a], i) => found.slice(i + 1).filter(([, b]) => a.width &&
        a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4)
        .map(([other]) => [name, other]));
})"""
RESOURCES = "performance.getEntriesByType('resource').map((e) => e.name).filter((name) => !/^data:/.test(name))"
CONTRAST = """(() => {
    const parse = (color) => color.match(/[\\d.]+/g).map(Number);
    const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
    const ground = (node) => {
        for (; node; node = node.parentElement) {
            const color = parse(getComputedStyle(node).backgroundColor);
            if (color.length < 4 || color[3] > 0) return color;
        }
        return [255, 255, 255];
    };
    const poor = [];
    for (const node of document.querySelectorAll('body *')) {
        if (node.matches('script, noscript, :disabled, option') || !node.getClientRects().length) continue;
        if (![...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim())) continue;
        const style = getComputedStyle(node);
        const ink = parse(node.ownerSVGElement ? style.fill : style.color);
        const [a, b] = [light(ink), light(ground(node))].sort((x, y) => y - x);
        if ((a + 0.05) / (b + 0.05) < 4.5) poor.push([node.outerHTML.slice(0, 120), (a + 0.05) / (b + 0.05)]);
    }
    return poor;
})()"""


def find_browser() -> str | None:
    """The path of a Chromium or Chrome, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of a headless browser without a network; `complaints` has its errors and requests beyond the file.

    It may also have a `server` on this machine, "http://127.0.0.1:8000".
    """

    def __init__(self, profile: Path, server: str = "file:") -> None:
        self.server = server
        down, up = os.pipe(), os.pipe()
        options = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--hide-scrollbars",
            f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank",
        ]  # fmt: skip
        command = [sys.executable, "-c", LAUNCH, str(down[0]), str(up[1]), find_browser(), *options]
        self.process = subprocess.Popen(command, pass_fds=(down[0], up[1]), stderr=subprocess.DEVNULL)
        os.close(down[0])
        os.close(up[1])
        self.sending, self.receiving, self.buffer, self.number = down[1], up[0], b"", 0
        self.session: str | None = None
        self.complaints: list[str] = []
        self.loaded = False
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            self.session = None
            self.ask("Browser.close")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.sending)
        os.close(self.receiving)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.sending, json.dumps(message).encode() + b"\0")
        while True:
            found = self._receive()
            if found.get("id") == self.number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']['message']}")
                return found["result"]

    def _receive(self, seconds: float = 60) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.receiving], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            fresh = os.read(self.receiving, 1 << 20)
            if not fresh:
                raise RuntimeError("the browser has ended")
            self.buffer += fresh
        line, self.buffer = self.buffer.split(b"\0", 1)
        found = json.loads(line)
        self._note(found.get("method"), found.get("params", {}))
        return found

    def _note(self, event: str | None, about: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self.loaded = True
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(about["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(about["args"]))
        elif event == "Log.entryAdded":
            self.complaints.append(about["entry"]["text"])
        elif event == "Network.requestWillBeSent" and not about["request"]["url"].startswith(
            ("file:", "data:", "blob:", self.server)
        ):
            self.complaints.append(f"request: {about['request']['url']}")

    def open(self, page: Path | str, width: int = 1400, scheme: str = "light", scripts: bool = True) -> None:
        """Load a file or an address at a width in pixels and a preferred color scheme, with or without scripts."""
        self.complaints, self.loaded = [], False
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **metrics)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.ask("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not self.loaded:
            self._receive()

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression, of a promise what it becomes."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"]))
        return found["result"].get("value")

    def count(self, selector: str) -> int:
        """How many elements a selector finds."""
        return self.run(f"document.querySelectorAll({json.dumps(selector)}).length")

    def text(self, selector: str) -> str:
        """All the text of the first element that a selector finds."""
        return self.run(f"document.querySelector({json.dumps(selector)}).textContent")

    def press(self, key: str, code: int) -> None:
        """A key of the keyboard, for whatever has the focus."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def hover(self, selector: str, number: int = 0) -> None:
        """The pointer over the middle of an element, scrolled into view."""
        place = f"document.querySelectorAll({json.dumps(selector)})[{number}]"
        self.run(f"{place}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        frame = self.run(f"(({{x, y, width, height}}) => ({{x, y, width, height}}))({place}.getBoundingClientRect())")
        x, y = frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))


def assert_clean(browser: Browser, page: Path) -> None:
    """A page shows all it has at both widths and in both themes, can be read, and asks for nothing."""
    grounds = []
    for width in (1400, 390):
        for scheme in ("light", "dark"):
            browser.open(page, width, scheme)
            browser.run("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
            assert browser.run(OVERFLOW) == [] and browser.run("document.documentElement.scrollWidth") == width
            assert browser.run(CUT_OFF) == [] and browser.run(OVERLAPS) == []
            assert browser.run(CONTRAST) == []
            assert browser.run(RESOURCES) == []
            assert browser.complaints == []
            grounds.append(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert grounds[0] == grounds[2] != grounds[1] == grounds[3]
