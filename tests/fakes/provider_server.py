"""A scripted HTTP server over plain sockets: four providers' wire formats, and every way to answer wrongly.

A script is a list of answers in order; the last one is given again for ever. An answer is bytes, a sequence of steps,
or a callable that takes the `Seen` request and returns either. Steps: bytes are sent; a number is a pause in seconds;
`RESET` drops the connection with a reset, `CLOSE` hangs up, `HALF` ends only our side of it, `HANG` holds it until the
server closes. After the steps the connection is kept for the next request.

`http` makes the bytes of an HTTP answer, `OPENAI`, `RESPONSES`, `ANTHROPIC` and `GEMINI` the JSON of a provider's.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from fakes.openai_server import Seen

RESET, CLOSE, HALF, HANG = "reset", "close", "half", "hang"
Step = bytes | float | str
Answer = bytes | Sequence[Step] | Callable[[Seen], bytes | Sequence[Step]]


def http(body: Any = b"", status: int = 200, *, length: int | None = None, **headers: str) -> bytes:
    """An HTTP answer: a body of bytes, text or anything JSON has. `length` is the Content-Length it claims, -1 for
    none; a header name has `_` for `-`."""
    data = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    size = len(data) if length is None else length
    named = {"content-type": "application/json", **({} if size < 0 else {"content-length": str(size)})}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + data


def trickle(data: bytes, seconds: float, size: int = 1) -> Iterator[Step]:
    """Data in pieces of `size` bytes with a pause after each."""
    for at in range(0, len(data), size):
        yield data[at : at + size]
        yield seconds


class ProviderServer:
    """The server, started. Use as a context manager; `requests` lists what came, `connections` counts them."""

    def __init__(self, *script: Answer) -> None:
        self._script = script
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self.requests: list[Seen] = []
        self.connections = 0
        self._open: set[socket.socket] = set()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def root(self) -> str:
        """Its URL without a path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """Its URL as most providers' are."""
        return self.root + "/v1"

    def close(self) -> None:
        """Stop, and let go of the connections that are being held. A client keeps them for the next server that
        happens to get this port, which would not be the one to answer."""
        self._closing.set()
        hang_up([self._socket])  # before its number is another's: the thread that accepts would take that one's callers
        self._thread.join(5)
        self._socket.close()
        hang_up(self._open)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file:
            self._open.add(connection)
            try:
                while (seen := _request(file)) is not None:
                    with self._lock:
                        answer = self._script[min(len(self.requests), len(self._script) - 1)]
                        self.requests.append(seen)
                    steps = answer(seen) if callable(answer) else answer
                    if not self._play(connection, [steps] if isinstance(steps, bytes) else steps):
                        return
            except (OSError, ValueError):
                return

    def _play(self, connection: socket.socket, steps: Sequence[Step]) -> bool:
        """Whether the connection is to be kept."""
        for step in steps:
            if isinstance(step, bytes):
                connection.sendall(step)
            elif isinstance(step, str):
                if step == RESET:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if step == HALF:
                    connection.shutdown(socket.SHUT_WR)
                if step in {HALF, HANG}:
                    self._closing.wait()
                return False
            elif self._closing.wait(step):
                return False
        return True


def hang_up(connections: Iterable[socket.socket]) -> None:
    """End connections that may have ended already."""
    for one in list(connections):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def _request(file: Any) -> Seen | None:
    """The next request of a connection, None at its end or where it is no HTTP."""
    first = file.readline(65_536).split()
    if len(first) != 3 or first[0] != b"POST":
        return None
    headers: dict[str, str] = {}
    while line := file.readline(65_536).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    raw = file.read(int(headers.get("content-length", 0)))
    return Seen(first[1].decode(), headers, raw, time.monotonic())


# --- what the providers say ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """One answer in no provider's words. `calls` are (id, name, arguments); `thought` comes with a signature."""

    text: str = ""
    calls: tuple[tuple[str, str, Mapping[str, Any]], ...] = ()
    thought: str = ""
    finish: str = ""
    input: int = 1000
    output: int = 50
    read: int = 900
    wrote: int = 0
    reasoning: int = 20


def openai(said: Said) -> dict[str, Any]:
    """A chat completion."""
    calls = [
        {"id": name, "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
        for name, tool, arguments in said.calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": said.text or None, "refusal": None, "annotations": []}
    message |= {"tool_calls": calls} if calls else {}
    message |= {"reasoning_content": said.thought} if said.thought else {}
    finish = said.finish or ("tool_calls" if calls else "stop")
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "m-1-2026",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": said.input,
            "completion_tokens": said.output,
            "total_tokens": said.input + said.output,
            "prompt_tokens_details": {"cached_tokens": said.read, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": said.reasoning, "audio_tokens": 0},
        },
        "service_tier": "default",
        "system_fingerprint": "fp_1",
    }


def responses(said: Said) -> dict[str, Any]:
    """A response object: reasoning, message and calls are items of their own."""
    output: list[dict[str, Any]] = []
    if said.thought:
        summary = [{"type": "summary_text", "text": said.thought}]
        output.append({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "c2lnbmVk"})
    if said.text:
        content = [{"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}]
        output.append(
            {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": content}
        )
    for name, tool, arguments in said.calls:
        output.append(
            {
                "type": "function_call",
                "id": f"fc_{name}",
                "call_id": name,
                "name": tool,
                "arguments": json.dumps(arguments),
                "status": "completed",
            }
        )
    cut = {"length": "max_output_tokens", "filtered": "content_filter"}.get(said.finish)
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": cut} if cut else None,
        "instructions": None,
        "max_output_tokens": 500,
        "model": "m-1-2026",
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": "medium", "summary": None},
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": said.input,
            "input_tokens_details": {"cached_tokens": said.read},
            "output_tokens": said.output,
            "output_tokens_details": {"reasoning_tokens": said.reasoning},
            "total_tokens": said.input + said.output,
        },
        "user": None,
        "metadata": {},
    }


def anthropic(said: Said) -> dict[str, Any]:
    """A message. Its `input_tokens` are those that no cache had to do with."""
    content: list[dict[str, Any]] = []
    if said.thought:
        content.append({"type": "thinking", "thinking": said.thought, "signature": "c2lnbmVk"})
    if said.text:
        content.append({"type": "text", "text": said.text})
    content += [
        {"type": "tool_use", "id": name, "name": tool, "input": arguments} for name, tool, arguments in said.calls
    ]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m-1-2026",
        "content": content,
        "stop_reason": said.finish or ("tool_use" if said.calls else "end_turn"),
        "stop_sequence": None,
        "usage": {
            "input_tokens": said.input - said.read - said.wrote,
            "cache_creation_input_tokens": said.wrote,
            "cache_read_input_tokens": said.read,
            "cache_creation": {"ephemeral_5m_input_tokens": said.wrote, "ephemeral_1h_input_tokens": 0},
            "output_tokens": said.output,
            "service_tier": "standard",
        },
    }


def gemini(said: Said) -> dict[str, Any]:
    """A generateContent answer. Thoughts are counted beside the candidates' tokens."""
    parts: list[dict[str, Any]] = []
    if said.thought:
        parts.append({"text": said.thought, "thought": True})
    if said.text:
        parts.append({"text": said.text})
    for index, (_, tool, arguments) in enumerate(said.calls):
        signed = {"thoughtSignature": "c2lnbmVk" * 20 + "+/=="} if said.thought and index == 0 else {}
        parts.append({"functionCall": {"name": tool, "args": arguments}, **signed})
    return {
        "candidates": [
            {"content": {"parts": parts, "role": "model"}, "finishReason": said.finish or "STOP", "index": 0}
        ],
        "usageMetadata": {
            "promptTokenCount": said.input,
            "candidatesTokenCount": said.output - said.reasoning,
            "thoughtsTokenCount": said.reasoning,
            "totalTokenCount": said.input + said.output,
            "cachedContentTokenCount": said.read,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": said.input}],
        },
        "modelVersion": "m-1-2026",
        "responseId": "r-1",
    }
