"""A provider on the loopback for dry runs and tests: the few end points that a fine-tuning needs, and its troubles.

It listens on 127.0.0.1 alone, keeps everything in memory, learns nothing, and answers questions by the
task's rule where ``knows`` is True.
"""

import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from entp_lib.tasks.counting import count2, count3
from entp_papers.entp.pretrained.prompts import as_list


class Provider:
    """What the server remembers, and which troubles it makes.

    ``busy``: how many requests are refused at first for their rate. ``failure``: why a job fails, "" for one that
    succeeds after two looks. ``refused``: what is answered to every request, as for a wrong key.
    """

    def __init__(self, busy: int = 0, failure: str = "", refused: str = "", knows: bool = True):
        self.busy, self.failure, self.refused, self.knows = busy, failure, refused, knows
        self.files: dict[str, dict[str, Any]] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.keys: set[str] = set()

    def answer(self, method: str, path: str, body: bytes, headers) -> tuple[int, dict[str, Any]]:
        """Status and JSON of one request."""
        path = path.partition("?")[0].removeprefix("/v1")
        self.requests.append(f"{method} {path}")
        self.keys.add(headers.get("Authorization", ""))
        if self.refused:
            return 401, trouble(self.refused, "invalid_api_key")
        if self.busy:
            self.busy -= 1
            return 429, trouble("Rate limit reached, try again", "rate_limit_exceeded")
        if (method, path) == ("GET", "/files"):
            return 200, {"object": "list", "data": list(self.files.values()), "has_more": False}
        if (method, path) == ("POST", "/files"):
            return 200, self.receive(body)
        if (method, path) == ("POST", "/fine_tuning/jobs"):
            return self.create(json.loads(body))
        if method == "GET" and path.startswith("/fine_tuning/jobs/"):
            return self.look(path.rpartition("/")[2])
        if (method, path) == ("POST", "/chat/completions"):
            return self.reply(json.loads(body))
        return 404, trouble(f"no such end point: {path}", "not_found")

    def receive(self, body: bytes) -> dict[str, Any]:
        name = re.search(rb'filename="([^"]+)"', body)[1].decode()
        place = f"file-{len(self.files) + 1}"
        self.files[place] = {
            "id": place,
            "object": "file",
            "bytes": len(body),
            "created_at": 0,
            "filename": name,
            "purpose": "fine-tune",
            "status": "processed",
        }
        return self.files[place]

    def create(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if asked["training_file"] not in self.files:
            return 400, trouble(f"no file {asked['training_file']}", "invalid_file")
        place = f"ftjob-{len(self.jobs) + 1}"
        self.jobs[place] = {
            "id": place,
            "object": "fine_tuning.job",
            "created_at": 0,
            "status": "queued",
            "model": asked["model"],
            "training_file": asked["training_file"],
            "method": asked.get("method"),
            "hyperparameters": {},
            "organization_id": "loopback",
            "result_files": [],
            "seed": 0,
            "fine_tuned_model": None,
            "trained_tokens": None,
            "error": None,
        }
        return 200, self.jobs[place]

    def look(self, place: str) -> tuple[int, dict[str, Any]]:
        """A job goes on with every look: queued, running, and its end."""
        if place not in self.jobs:
            return 404, trouble(f"no job {place}", "not_found")
        job = self.jobs[place]
        now = dict(job)
        if job["status"] == "queued":
            job["status"] = "running"
        elif job["status"] == "running" and self.failure:
            job |= {"status": "failed", "error": {"code": "failed", "message": self.failure, "param": None}}
        elif job["status"] == "running":
            job |= {"status": "succeeded", "fine_tuned_model": f"ft:{job['model']}:loopback", "trained_tokens": 1}
        return 200, now

    def reply(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        text = asked["messages"][-1]["content"]
        message = {"role": "assistant", "content": self.solve(text) if self.knows else "I do not know."}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return 200, {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": asked["model"],
            "choices": [choice],
        }

    def solve(self, text: str) -> str:
        """The right answer to a prompt with code."""
        x = [int(n) for n in re.search(r"x = \[([^\]]*)\]", text)[1].split(",")]
        function = count3 if "x[j]" in text else count2
        for _ in range(int(re.search(r"range\((\d+)\)", text)[1])):
            x.append(function(x))
        return as_list(x)


def trouble(message: str, code: str) -> dict[str, Any]:
    """An error as the provider words one."""
    return {"error": {"message": message, "type": "error", "param": None, "code": code}}


@contextmanager
def serving(provider: Provider):
    """Within it ``provider`` answers at the address that is given."""

    class Handler(BaseHTTPRequestHandler):
        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, found = provider.answer(self.command, self.path, body, self.headers)
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            if status == 429:
                self.send_header("retry-after-ms", "1")
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = handle_one

        def log_message(self, *_) -> None:
            """Nothing: a log would hold what was sent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
