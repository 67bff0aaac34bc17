"""A real browser for tests: Chromium over its debugging pipe, without any library.

    with browser() as chromium:
        page = chromium.page(width=1280, height=900)
        page.open(address)
        page.wait("document.querySelector('h1')")

A page notes everything that must not happen: requests to other places, violations of the content security policy,
errors of scripts. `page.complaints()` has them.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
PATIENCE = 30.0  # seconds for anything to become true
OPTIONS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # tests may run as root, and in containers
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
)
# Runs in every document before anything else.
_WATCH = """
window.__violations = [];
addEventListener("securitypolicyviolation", event =>
  window.__violations.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sourceFile}`));
"""
KEYS = {
    "Enter": 13,
    "Tab": 9,
    "Escape": 27,
    "ArrowDown": 40,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "Space": 32,
}


# What an evaluation ends with while another document takes the place of the one that it looked at.
_NAVIGATED = ("Inspected target navigated or closed", "Execution context was destroyed.")


class Navigated(Exception):
    """The document is not there any more."""


class Chromium:
    """The browser: commands and their answers over two pipes, messages separated by NUL."""

    def __init__(self, write: int, read: int) -> None:
        self._write = write
        self._read = read
        self._number = 0
        self._answers: dict[int, Any] = {}
        self._changed = threading.Condition()
        self.pages: dict[str, Page] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        held = b""
        while data := os.read(self._read, 1 << 20):
            *messages, held = (held + data).split(b"\0")
            for message in map(json.loads, messages):
                with self._changed:
                    if "id" in message:
                        self._answers[message["id"]] = message
                    elif page := self.pages.get(message.get("sessionId", "")):
                        page.take(message["method"], message["params"])
                    self._changed.notify_all()

    def call(self, method: str, params: dict[str, Any] | None = None, session: str = "") -> Any:
        with self._changed:
            self._number += 1
            number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        with self._changed:
            assert self._changed.wait_for(lambda: number in self._answers, PATIENCE), method
            answer = self._answers.pop(number)
        error = answer.get("error")
        if error is not None and error["message"] in _NAVIGATED:
            raise Navigated(method)
        assert error is None, (method, error)
        return answer["result"]

    def page(self, width: int = 1280, height: int = 900, **features: str) -> Page:
        """A new page, in a context of its own: without cookies and storage of others."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call(
            "Target.createTarget", {"url": "about:blank", "browserContextId": context}
        )["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = Page(self, attached["sessionId"])
        self.pages[page.session] = page
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)
        page.size(width, height)
        page.media(**features)
        return page


# Where an element is; nothing while it has no place (a dialog that is not open yet), or while
# something else lies over it.
_MIDDLE = """selector => {
  const one = document.querySelector(selector);
  one?.scrollIntoView({block: "center"});
  const box = one?.getBoundingClientRect();
  if (!box?.width) return null;
  const at = [box.x + box.width / 2, box.y + box.height / 2];
  const met = document.elementFromPoint(...at);
  return one.contains(met) ? at : null;
}"""


class Page:
    """One page."""

    def __init__(self, chromium: Chromium, session: str) -> None:
        self._chromium = chromium
        self.session = session
        self.requests: list[str] = []
        self.bytes: dict[str, int] = {}
        self._errors: list[str] = []
        self._allowed = ""

    def call(self, method: str, **params: Any) -> Any:
        return self._chromium.call(method, params, self.session)

    def take(self, method: str, params: dict[str, Any]) -> None:
        """An event of the browser."""
        match method:
            case "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith("data:"):
                    self.requests.append(url)
            case "Network.loadingFinished":
                self.bytes[params["requestId"]] = int(params["encodedDataLength"])
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self._errors.append(str(details.get("exception", {}).get("description", details)))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self._errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case _:
                pass

    def complaints(self, *, but: str = "\0") -> list[str]:
        """All that should not have happened; `but` are errors that the test has caused itself."""
        violations: list[str] = self.evaluate("window.__violations ?? []")
        foreign = [url for url in self.requests if not url.startswith(self._allowed)]
        return [one for one in (*violations, *foreign, *self._errors) if but not in one]

    def open(self, address: str) -> None:
        """Go there. Its origin is the only place to which requests may go."""
        self._allowed = "/".join(address.split("/")[:3]) + "/"
        self.call("Page.navigate", url=address)
        self.wait("document.querySelector('nav')")

    def evaluate(self, script: str) -> Any:
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = PATIENCE) -> Any:
        """The value of this expression, once it is true, whichever document the page has by then."""
        until = time.monotonic() + seconds
        script = f"(() => {{ const it = {condition}; return it instanceof Node ? true : it; }})()"
        while True:
            with suppress(Navigated):  # the next look is at the new document
                if value := self.evaluate(script):
                    return value
            assert time.monotonic() < until, (condition, self.text())
            time.sleep(0.02)

    def text(self, selector: str = "body") -> str:
        return str(
            self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        )

    def go(self, route: str) -> None:
        self.evaluate(f"void (location.hash = {json.dumps(route)})")

    def click(self, selector: str, *, shift: bool = False) -> None:
        """Press the mouse in the middle of an element, once the mouse would meet it there."""
        at = self.wait(f"({_MIDDLE})({json.dumps(selector)})")
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=at[0],
                y=at[1],
                button="left",
                clickCount=1,
                modifiers=8 if shift else 0,
            )

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        if len(key) == 1:
            self.call("Input.dispatchKeyEvent", type="keyDown", text=key, key=key)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
            return
        code = {
            "key": " " if key == "Space" else key,
            "code": key,
            "windowsVirtualKeyCode": KEYS[key],
        }
        text = {"Enter": {"text": "\r"}, "Space": {"text": " "}}.get(key, {})
        self.call("Input.dispatchKeyEvent", type="keyDown", **code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def focused(self) -> str:
        """What has the focus, in a few words."""
        return str(
            self.evaluate(
                "(({tagName, innerText, ariaLabel}) => `${tagName} ${ariaLabel ?? innerText ?? ''}`)"
                "(document.activeElement)"
            )
        )

    def size(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def media(self, **features: str) -> None:
        """Such as prefers_color_scheme="dark"."""
        named = [{"name": n.replace("_", "-"), "value": v} for n, v in features.items()]
        self.call("Emulation.setEmulatedMedia", features=named)

    def screenshot(self, path: Path) -> None:
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))


# Chromium reads commands from descriptor 3 and answers on 4, whatever their numbers are here.
_START = """
import fcntl, os, sys
commands, answers = (fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3])
os.dup2(commands, 3)
os.dup2(answers, 4)
os.closerange(5, 64)
os.execv(sys.argv[3], sys.argv[3:])
"""


@contextmanager
def browser() -> Generator[Chromium]:
    """Chromium, with a profile that is gone afterwards."""
    read_commands, write_commands = os.pipe()
    read_answers, write_answers = os.pipe()
    folder = tempfile.mkdtemp(prefix="chromium-")
    pipes = [str(read_commands), str(write_answers)]
    start = [sys.executable, "-c", _START, *pipes, CHROMIUM]
    argv = [*start, *OPTIONS, f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(
        argv,
        pass_fds=(read_commands, write_answers),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": folder},
    )
    os.close(read_commands)
    os.close(write_answers)
    try:
        chromium = Chromium(write_commands, read_answers)
        yield chromium
        chromium.call("Browser.close")
    finally:
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(write_commands)
        os.close(read_answers)
        shutil.rmtree(folder, ignore_errors=True)
