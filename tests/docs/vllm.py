"""A server in vLLM's place, which answers with what a vLLM 0.32 said: `python -m tests.docs.vllm PORT`."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SAID = Path(__file__).parents[1] / "adapters" / "vllm"
_ANSWER = {
    "id": "chatcmpl-9d0b1f6e3f6f4f0c",
    "object": "chat.completion",
    "created": 1795493700,
    "model": "demo",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "aaaaa"}, "finish_reason": "length"}
    ],
    "usage": {"prompt_tokens": 12, "total_tokens": 17, "completion_tokens": 5},
}


class _Vllm(BaseHTTPRequestHandler):
    """Its metrics and models as they were; of completions the form alone, since what a vLLM with weights at random writes is nonsense."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        known = {"/health": b"", "/version": b'{"version":"0.32.0"}'}
        files = {"/metrics": "metrics.txt", "/v1/models": "models.json"}
        kind = "text/plain; version=0.0.4" if self.path == "/metrics" else "application/json"
        if self.path in files:
            self._say(200, (SAID / files[self.path]).read_bytes(), kind)
        else:
            self._say(
                200 if self.path in known else 404, known.get(self.path, b'{"detail":"Not Found"}'), kind
            )

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._say(200, json.dumps(_ANSWER, separators=(",", ":")).encode(), "application/json")

    def _say(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Vllm).serve_forever()
