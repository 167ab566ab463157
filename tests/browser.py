"""A headless browser for the tests: Chromium over its DevTools protocol."""

import json
import shutil
import subprocess
import urllib.request

import pytest
import websocket
from made_up import wait_for

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --remote-debugging-port=0 --remote-allow-origins=* "
    "--no-first-run --disable-extensions --disable-background-networking "
    "--disable-component-update --disable-sync --disable-quic"
)


class Browser:
    """One page of a browser; without one the test is skipped.

    ``requests``: what it asked for; ``problems``: errors it wrote to its console.
    """

    def __init__(self, folder):
        program = next((found for name in NAMES if (found := shutil.which(name))), None)
        if program is None:
            pytest.skip(f"no browser is installed: one of {', '.join(NAMES)}; apt install chromium")
        self.process = subprocess.Popen(
            [program, *FLAGS.split(), f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.requests = []
        self.problems = []
        self.count = 0
        place = folder / "DevToolsActivePort"
        wait_for(lambda: place.exists() and "\n" in place.read_text(), 60)
        port = place.read_text().split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=60) as answer:
            pages = [target for target in json.load(answer) if target["type"] == "page"]
        self.socket = websocket.create_connection(pages[0]["webSocketDebuggerUrl"], timeout=120)
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def note(self, event):
        params = event.get("params", {})
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        if event.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        if event.get("method") == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.problems.append(str([argument.get("value") for argument in params["args"]]))
        if event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def call(self, method, until="", **params):
        """What a method of the protocol returns; ``until``: the event to wait for besides."""
        self.count += 1
        number, result, seen = self.count, None, not until
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while result is None or not seen:
            message = json.loads(self.socket.recv())
            if message.get("id") == number:
                result = message
            self.note(message)
            seen = seen or message.get("method") == until
        if "error" in result:
            raise RuntimeError(f"{method}: {result['error']}")
        return result["result"]

    def size(self, width, dark=False):
        """Set the window's width, and whether the reader prefers dark pages."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        wish = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[wish])

    def open(self, page):
        """Go to a page, a file, and wait until it has loaded."""
        self.call("Page.navigate", until="Page.loadEventFired", url=page.as_uri())

    def enter(self, selector, value):
        """Put a value into a control, as a reader would."""
        field = f"document.querySelector({json.dumps(selector)})"
        event = "i.dispatchEvent(new Event('input'))"
        self.ask(f"(i => {{ i.value = {json.dumps(value)}; {event}; }})({field})")

    def ask(self, expression):
        """The value of a JavaScript expression, promises awaited."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(
                found["exceptionDetails"].get("exception", {}).get("description", "a script failed")
            )
        return found["result"].get("value")

    def close(self):
        self.socket.close()
        self.process.terminate()
        self.process.wait(timeout=30)
