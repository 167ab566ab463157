"""A headless browser for the tests: Chromium over its DevTools protocol, in plain Python."""

import base64
import contextlib
import http.client
import json
import os
import shutil
import socket
import struct
import subprocess
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def program() -> str | None:
    """The browser that is installed, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of a browser. ``requests``: what it asked for; ``problems``: errors it wrote to its console."""

    def __init__(self, folder: Path):
        flags = "--headless --no-sandbox --disable-gpu --remote-debugging-port=0 --no-first-run --disable-extensions"
        flags += (
            " --disable-background-networking --disable-component-update --disable-sync --disable-quic"
            " --allow-file-access-from-files"
        )
        self.process = subprocess.Popen(
            [program(), *flags.split(), f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.requests, self.problems, self.count = [], [], 0
        port = self.wait_for_port(folder / "DevToolsActivePort")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/json/list")
        targets = json.loads(connection.getresponse().read())
        connection.close()
        path = next(t["webSocketDebuggerUrl"] for t in targets if t["type"] == "page").split(str(port), 1)[1]
        self.connect(port, path)
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def wait_for_port(self, path: Path) -> int:
        for _ in range(600):
            with contextlib.suppress(FileNotFoundError, IndexError, ValueError):
                return int(path.read_text().splitlines()[0])
            time.sleep(0.1)
        raise TimeoutError("the browser did not start")

    def connect(self, port: int, path: str) -> None:
        """Shake hands as a WebSocket client (RFC 6455)."""
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        key = base64.b64encode(os.urandom(16)).decode()
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        self.socket.sendall(f"{head}Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += self.socket.recv(1)
        if b" 101 " not in answer:
            raise ConnectionError(answer.decode())

    def send(self, text: str) -> None:
        data, mask = text.encode(), os.urandom(4)
        length = len(data)
        if length < 126:
            size = bytes([128 | length])
        else:
            size = b"\xfe" + struct.pack(">H", length) if length < 1 << 16 else b"\xff" + struct.pack(">Q", length)
        self.socket.sendall(b"\x81" + size + mask + masked(data, mask))

    def receive(self) -> dict:
        whole = b""
        while True:
            first, second = self.exactly(2)
            length = second & 127
            if length > 125:
                length = struct.unpack(">H" if length == 126 else ">Q", self.exactly(2 if length == 126 else 8))[0]
            whole += self.exactly(length)
            if first & 128:
                return json.loads(whole)

    def exactly(self, count: int) -> bytes:
        parts = b""
        while len(parts) < count:
            part = self.socket.recv(count - len(parts))
            if not part:
                raise ConnectionError("the browser ended")
            parts += part
        return parts

    def note(self, event: dict) -> None:
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

    def call(self, method: str, until: str = "", **params) -> dict:
        """What a method of the protocol returns; ``until``: the event to wait for besides."""
        self.count += 1
        number, result, seen = self.count, None, not until
        self.send(json.dumps({"id": number, "method": method, "params": params}))
        while result is None or not seen:
            message = self.receive()
            if message.get("id") == number:
                result = message
            self.note(message)
            seen = seen or message.get("method") == until
        if "error" in result:
            raise RuntimeError(f"{method}: {result['error']}")
        return result["result"]

    def size(self, width: int, height: int = 900, dark: bool = False) -> None:
        """The window, and whether the reader prefers dark pages."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        wish = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[wish])

    def open(self, page: Path | str) -> None:
        """Go to a page, a file or an address, and wait until it has loaded."""
        url = page if isinstance(page, str) else page.as_uri()
        self.call("Page.navigate", until="Page.loadEventFired", url=url)

    def wait(self, expression: str, seconds: float = 120) -> None:
        """Wait until a JavaScript expression is true. TimeoutError names it where it does not become so."""
        end = time.monotonic() + seconds
        while not self.ask(f"!!({expression})"):
            if time.monotonic() > end:
                raise TimeoutError(expression)
            time.sleep(0.3)

    def ask(self, expression: str):
        """The value of a JavaScript expression, promises awaited."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description", "a script failed"))
        return found["result"].get("value")

    def picture(self, path: Path, whole: bool = False) -> None:
        """What the window shows, or the whole page, as a PNG."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        self.socket.close()
        self.process.terminate()
        self.process.wait(timeout=30)


def masked(data: bytes, mask: bytes) -> bytes:
    """``data`` with the WebSocket mask over it."""
    long = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(long, "big")).to_bytes(len(data), "big")
