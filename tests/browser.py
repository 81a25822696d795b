"""A real browser for tests: headless Chromium, spoken to through two pipes; no package needed."""

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 60  # seconds; only a browser that hangs needs them
FOLDER = Path("/usr/share/fonts/truetype")  # where Debian and Ubuntu have them
FONTS = {"DejaVu Sans": "dejavu", "Liberation Sans": "liberation", "Noto Sans": "noto"}
# All fonts of one folder, and one of them for whatever a page asks for.
ONLY = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{folder}</dir>
  <cachedir>{cache}</cachedir>
  <match target="pattern">
    <edit name="family" mode="append" binding="strong"><string>{name}</string></edit>
  </match>
</fontconfig>
"""


def find_browser() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def find_fonts() -> list[str | None]:
    """Return the usual fonts that are here; None, whatever there is, where none of them is."""
    return [name for name, folder in FONTS.items() if (FOLDER / folder).is_dir()] or [None]


class Browser:
    """One page of a browser, and all that it did."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._rest, self._last, self._session = to, back, b"", 0, None
        self.events: list[dict[str, Any]] = []

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._last:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._back, 1 << 20)
            assert part, "the browser has gone"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, page: Path, width: int = 1280, height: int = 900) -> None:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.resize(width, height)
        self.send("Page.navigate", url=page.resolve().as_uri())
        self.wait("document.readyState === 'complete'")

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.send("Emulation.setDeviceMetricsOverride", **size)

    def run(self, script: str) -> Any:
        """Evaluate JavaScript in the page, promises awaited."""
        options = {"expression": script, "awaitPromise": True, "returnByValue": True}
        result = self.send("Runtime.evaluate", **options)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, condition: str) -> None:
        end = time.monotonic() + PATIENCE
        while not self.run(condition):
            assert time.monotonic() < end, f"never came true: {condition}"
            time.sleep(0.05)

    def press(self, key: str) -> None:
        code = {"Tab": 9, "Enter": 13, " ": 32}[key]
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more
            )

    def picture(self, path: Path, whole: bool = False) -> None:
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    @property
    def errors(self) -> list[str]:
        """What the page complained about."""
        self.run("0")
        found = []
        for event in self.events:
            params, method = event.get("params", {}), event.get("method")
            if method == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"].get("text", "exception"))
            if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                found.append(str([arg.get("value") for arg in params["args"]]))
            if method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
        return found

    @property
    def requests(self) -> list[str]:
        """What the page asked for: itself, and nothing else."""
        self.run("0")
        sent = (e for e in self.events if e.get("method") == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]


@contextmanager
def browser(folder: Path, font: str | None = None) -> Iterator[Browser]:
    """Start a browser with a profile of its own, and end it; with a font, it has no other."""
    only = {}
    if font is not None:
        config, places = folder / "fonts.conf", (FOLDER / FONTS[font], folder / "fonts")
        config.write_text(ONLY.format(name=font, folder=places[0], cache=places[1]))
        only = {"FONTCONFIG_FILE": str(config)}
    read_in, to = os.pipe()
    back, write_out = os.pipe()
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", f"--user-data-dir={folder}", "--no-first-run"]  # fmt: skip
    # The protocol wants the pipes to be numbers 3 and 4.
    become = f"import os, sys; os.dup2({read_in}, 3); os.dup2({write_out}, 4)"
    start = [sys.executable, "-c", f"{become}; os.execv(sys.argv[1], sys.argv[1:])"]
    process = subprocess.Popen(
        [*start, str(find_browser()), *flags],
        env={**os.environ, **only},
        pass_fds=(read_in, write_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read_in)
    os.close(write_out)
    try:
        yield Browser(to, back)
    finally:
        process.terminate()
        process.wait()
        os.close(to)
        os.close(back)
