"""Rehearsal of a provider's fine-tuning against a server on 127.0.0.1 that learns nothing and makes trouble."""

import json
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

from entp_lib.tasks import Counting
from entp_lib.tasks.counting import count2, count3
from entp_lib.validation import from_dict, require
from entp_papers.entp.pretrained import provider
from entp_papers.entp.pretrained.prompts import as_list
from entp_papers.entp.pretrained.provider import KEY, FineTuning, ProviderError

KEY_OF_THE_DRY_RUN = "no-key-of-anyone"


class Loopback:
    """The few end points that a fine-tuning needs, answered from memory; questions by the task's rule.

    ``busy``: how many requests are refused at first for their rate. ``failure``: why a job fails, "" for one that
    succeeds after two looks. ``refused``: what is answered to every request, as for a wrong key.
    """

    def __init__(self, busy: int = 0, failure: str = "", refused: str = "", knows: bool = True):
        self.busy, self.failure, self.refused, self.knows = busy, failure, refused, knows
        self.files: dict[str, dict[str, Any]] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.keys: set[str] = set()

    def answer(self, request: str, body: bytes, key: str) -> tuple[int, dict[str, Any]]:
        """Status and JSON for a request ("GET /files")."""
        self.requests.append(request)
        self.keys.add(key)
        if self.refused:
            return 401, {"error": {"message": self.refused}}
        if self.busy:
            self.busy -= 1
            return 429, {"error": {"message": "Rate limit reached, try again"}}
        if request == "GET /files":
            return 200, {"object": "list", "data": list(self.files.values()), "has_more": False}
        if request == "POST /files":
            place, name = f"file-{len(self.files) + 1}", re.search(rb'filename="([^"]+)"', body)[1].decode()
            self.files[place] = {"id": place, "object": "file", "filename": name, "purpose": "fine-tune"}
            return 200, self.files[place]
        if request == "POST /fine_tuning/jobs":
            place = f"ftjob-{len(self.jobs) + 1}"
            self.jobs[place] = {"id": place, "status": "queued", "fine_tuned_model": None, **json.loads(body)}
            return 200, self.jobs[place]
        if request == "POST /chat/completions":
            text = json.loads(body)["messages"][-1]["content"]
            content = self.solve(text) if self.knows else "I do not know."
            return 200, {"choices": [{"index": 0, "message": {"role": "assistant", "content": content}}]}
        job = self.jobs[request.rpartition("/")[2]]
        now = dict(job)  # it goes on with every look: queued, running, and its end
        if job["status"] == "queued":
            job["status"] = "running"
        elif self.failure:
            job |= {"status": "failed", "error": {"message": self.failure}}
        else:
            job |= {"status": "succeeded", "fine_tuned_model": f"ft:{job['model']}:loopback", "trained_tokens": 1}
        return 200, now

    def solve(self, text: str) -> str:
        """The right answer to a prompt with code."""
        x = [int(n) for n in re.search(r"x = \[([^\]]*)\]", text)[1].split(",")]
        for _ in range(int(re.search(r"range\((\d+)\)", text)[1])):
            x.append((count3 if "x[j]" in text else count2)(x))
        return as_list(x)


@contextmanager
def serving(loopback: Loopback) -> Iterator[str]:
    """Within it ``loopback`` answers at the address that is given."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = f"{self.command} {self.path.partition('?')[0].removeprefix('/v1')}"
            status, found = loopback.answer(request, body, self.headers.get("Authorization", ""))
            data = json.dumps(found).encode()
            self.send_response(status)
            for name, value in (("Content-Type", "application/json"), ("Content-Length", len(data))):
                self.send_header(name, str(value))
            self.send_header("retry-after-ms", "1")
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET

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


def dry_run_study(
    task: dict[str, Any], train: int, test: int, model: str, client: bool = True
) -> tuple[dict[str, Any], dict[str, list]]:
    """Fine-tune and ask ``model`` at a provider on the loopback: (its log, scores, cost), {}.

    In turn: a job that fails, a refused rate, a run killed after the job was started, and one that goes on with it. The
    provider knows the task's rule, so that every answer must be right; nothing is learned. Without ``client`` only the
    files are written and priced.
    """
    log: list[str] = []
    metrics: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, mock.patch.dict(os.environ, {KEY: KEY_OF_THE_DRY_RUN}):
        files = provider.write_files(Path(name), from_dict(Counting, task), train, test)
        metrics["estimate"] = provider.estimate(*files, model)
        log.append(f"wrote {train} examples to train.jsonl and {test} to test.jsonl, no sequence in both")
        loopback = Loopback(busy=1, failure="the loopback was told to fail")
        with serving(loopback) as address:
            run = (Path(name) / "run", *files, model)
            options = dict(base_url=address, wait=0.0, say=log.append)
            if client:
                try:
                    FineTuning(*run, **options).answer()
                except ProviderError as error:
                    log.append(str(error))
                loopback.failure = ""
                FineTuning(*run, **options).start()
                log.append("killed here; the same command again:")
                metrics["scores"] = FineTuning(*run, **options).answer()
                metrics |= {"requests": loopback.requests[:60], "uploads": len(loopback.files)}
    require(KEY_OF_THE_DRY_RUN not in "\n".join(log), "the key is in the log")
    return metrics | {"log": log}, {}
