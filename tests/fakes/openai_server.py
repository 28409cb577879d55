"""A scripted HTTP server that speaks OpenAI chat completions, for tests and for a desk without a provider.

A script is a list of entries, answered in order; or a mapping of model name to such a list, so that several roles
can talk to one server (`openai/coder` is `coder` on the wire). An entry is a mapping (plain JSON) or, in process, a
callable that takes the `Seen` request and returns one. Keys of an entry, all optional:

    content       the text of the message                tool_calls  [{"name", "arguments" (object or raw text), "id"?}]
    finish        finish_reason ("tool_calls" / "stop")   usage       prompt_tokens, completion_tokens, cached_tokens, ...
    model, cost   what the reply says of itself           message     extra fields of the message

    status        another HTTP status than 200            headers     extra response headers
    body          the whole body: JSON value, or text     delay_s     seconds to wait before the first byte
    cut           send this many bytes, then hang up      slow_s      seconds between two bytes
    hang          take the request, never answer

After the last entry every request gets status 400 "the script has ended", or the last entry again (`repeat=True`).

    python -m fakes.openai_server script.json [--port N] [--repeat]     prints its base URL, serves until killed
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True)
class Seen:
    """One request as it came over the wire; header names in lower case."""

    path: str
    headers: Mapping[str, str]
    raw: bytes
    at: float

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.raw)

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body["messages"]


Entry = Mapping[str, Any] | Callable[[Seen], Mapping[str, Any]]
Script = Sequence[Entry] | Mapping[str, Sequence[Entry]]


def say(content: str | None = "", **entry: Any) -> dict[str, Any]:
    """An entry that answers with text."""
    return {"content": content, **entry}


def call(name: str, arguments: Mapping[str, Any] | str, *, content: str | None = None, **entry: Any) -> dict[str, Any]:
    """An entry that asks for one tool."""
    return {"content": content, "tool_calls": [{"name": name, "arguments": arguments}], **entry}


def fault(status: int, message: str, *, code: str | None = None, **entry: Any) -> dict[str, Any]:
    """An entry with an error body as OpenAI writes it."""
    body = {"error": {"message": message, "type": code or "error", "param": None, "code": code}}
    return {"status": status, "body": body, **entry}


class OpenAIServer:
    """The server, started. Use as a context manager; `requests` lists all that came, in order of arrival."""

    def __init__(self, script: Script, *, port: int = 0, repeat: bool = False) -> None:
        self._script, self._repeat = script, repeat
        self._next: dict[str, int] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self.requests: list[Seen] = []
        self.open: set[socket.socket] = set()
        self._http = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._http.daemon_threads = True
        self._http.block_on_close = False
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._http.server_address[1]

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def close(self) -> None:
        """Hang up, also on requests that are being held, and on connections that a client keeps for the next server
        that happens to get this port."""
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        for one in list(self.open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def wait(self, seconds: float | None) -> None:
        """A pause that ends when the server closes."""
        self._closing.wait(seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer(self, seen: Seen) -> Mapping[str, Any]:
        """The next entry for this request."""
        with self._lock:
            self.requests.append(seen)
            name, entries = "", self._script
            if isinstance(entries, Mapping):
                name = str(seen.body.get("model", ""))
                entries = entries.get(name, ())
            at = self._next.get(name, 0)
            self._next[name] = at + 1
            if at >= len(entries) and not (self._repeat and entries):
                return fault(400, f"the script has ended after {len(entries)} answers{f' for {name}' if name else ''}")
            entry = entries[min(at, len(entries) - 1)]
        return entry(seen) if callable(entry) else entry


def completion(entry: Mapping[str, Any], seen: Seen, number: int) -> dict[str, Any]:
    """The chat completion an entry stands for. Usage that is not given is counted at four bytes a token."""
    tools = [
        {
            "id": tool.get("id", f"call_{number}_{index}"),
            "type": "function",
            "function": {
                "name": tool["name"],
                "arguments": tool["arguments"] if isinstance(tool["arguments"], str) else json.dumps(tool["arguments"]),
            },
        }
        for index, tool in enumerate(entry.get("tool_calls", ()))
    ]
    message = {"role": "assistant", "content": entry.get("content"), **entry.get("message", {})}
    if tools:
        message["tool_calls"] = tools
    given = entry.get("usage") or {}
    prompt = given.get("prompt_tokens", len(seen.raw) // 4 + 1)
    output = given.get("completion_tokens", len(json.dumps(message)) // 4 + 1)
    usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
    if "cached_tokens" in given:
        usage["prompt_tokens_details"] = {"cached_tokens": given["cached_tokens"]}
    if "reasoning_tokens" in given:
        usage["completion_tokens_details"] = {"reasoning_tokens": given["reasoning_tokens"]}
    if "cost" in entry:
        usage["cost"] = entry["cost"]
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": entry.get("model", seen.body.get("model", "scripted")),
        "choices": [
            {"index": 0, "message": message, "finish_reason": entry.get("finish", "tool_calls" if tools else "stop")}
        ],
        **({} if entry.get("usage", {}) is None else {"usage": usage}),  # "usage": null sends none
    }


def _handler(server: OpenAIServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            server.open.add(self.connection)

        def log_message(self, *_: object) -> None:
            """Silence: stderr is the test's."""

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen = Seen(self.path, headers, raw, time.monotonic())
            entry = server.answer(seen)
            if entry.get("hang"):
                server.wait(None)
                self.close_connection = True
                return
            if entry.get("delay_s"):
                server.wait(entry["delay_s"])
            try:
                self._send(entry, seen)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def _send(self, entry: Mapping[str, Any], seen: Seen) -> None:
            if "body" in entry:
                body = entry["body"]
                data = (
                    body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
                )
            else:
                data = json.dumps(completion(entry, seen, len(server.requests))).encode()
            self.send_response(entry.get("status", 200))
            headers = {"Content-Type": "application/json", "Content-Length": str(len(data)), **entry.get("headers", {})}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            cut = entry.get("cut")
            data = data if cut is None else data[:cut]
            if entry.get("slow_s"):
                for byte in data:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    server.wait(entry["slow_s"])
            else:
                self.wfile.write(data)
            if cut is not None:
                self.close_connection = True

    return Handler


def main(argv: Sequence[str] | None = None) -> None:
    """Serve a script from a JSON file until killed."""
    parser = argparse.ArgumentParser(prog="fakes.openai_server", description="A scripted OpenAI chat server.")
    parser.add_argument("script", type=Path, help="JSON: a list of entries, or a mapping of model name to such a list")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--repeat", action="store_true", help="answer with the last entry for ever")
    options = parser.parse_args(argv)
    server = OpenAIServer(json.loads(options.script.read_text()), port=options.port, repeat=options.repeat)
    print(server.base_url, flush=True)
    try:
        server.wait(None)
    except KeyboardInterrupt:
        server.close()
        sys.exit(130)


if __name__ == "__main__":
    main()
