"""A real headless Chromium over its debugging pipe: pages, widths, errors, pictures."""

import base64
import contextlib
import json
import os
import pathlib
import shutil
import subprocess  # noqa: TID251  (the browser is a program of the test)
from collections.abc import Iterator
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
ANSWER_S = 60


def program() -> str | None:
    """Path of the browser, None where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Page:
    """One open page, and what went wrong on it."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, os.fdopen(from_browser, "rb", buffering=0)
        self._number, self._rest = 0, b""
        self._session: str | None = None
        self.errors: list[str] = []
        self.requested: list[str] = []

    def close(self) -> None:
        """Lets go of the browser."""
        os.close(self._to)
        self._from.close()

    def open(self, path: pathlib.Path) -> None:
        """Opens the file, with its errors and requests watched from the start."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Page.navigate", url=path.as_uri())
        self._until("Page.loadEventFired")

    def size(self, width: int, *, dark: bool = False) -> None:
        """Lays the page out at that width, in light or dark."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def value(self, expression: str) -> Any:
        """What the expression is on the page."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def picture(self, path: pathlib.Path) -> None:
        """Writes the whole page as PNG."""
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        """The page as printed."""
        return base64.b64decode(self.ask("Page.printToPDF")["data"])

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The browser's answer to one command."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _until(self, event: str) -> None:
        while self._next().get("method") != event:
            pass

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = self._from.read(65536)
            assert piece, "the browser ended"
            self._rest += piece
        raw, self._rest = self._rest.split(b"\0", 1)
        message = json.loads(raw)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method: str | None, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(json.dumps(params["args"]))
        elif method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])


@contextlib.contextmanager
def page(profile: pathlib.Path) -> Iterator[Page]:
    """A page of a browser of its own, whose profile is the empty folder given."""
    found = program()
    assert found is not None, "asked for without a browser"
    browser_reads, to_browser = os.pipe()
    from_browser, browser_writes = os.pipe()
    command = f'exec "$@" 3<&{browser_reads} 4>&{browser_writes}'
    process = subprocess.Popen(
        ["bash", "-c", command, "chromium", found, *FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(browser_reads, browser_writes),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(browser_reads)
    os.close(browser_writes)
    opened = Page(to_browser, from_browser)
    try:
        yield opened
    finally:
        process.terminate()
        process.wait(ANSWER_S)
        opened.close()
