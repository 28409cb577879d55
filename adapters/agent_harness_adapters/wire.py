"""The HTTP under litellm: one door for all of its calls, which keeps what came through.

litellm follows redirects and would hand a key in a header of its own (`x-api-key`) to wherever they lead; a socket's
timeout starts anew with every byte; and its errors often hide what the server really said. Here no redirect is
followed, the answer as a whole has a deadline and a greatest size, and `watch` gives the caller the facts.
"""

import json
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, cast

MOST_BYTES = 16 << 20
"""Of one answer: many times what the longest output needs."""

_HERE = threading.local()


@dataclass(slots=True)
class Exchange:
    """What is known of the last request that a thread sent. `status` 0: no head of an answer came."""

    asked: bool = False
    reached: bool = True
    """False: it is certain that the server never got the request."""
    lost: bool = False
    """The connection failed after that, before the answer was whole."""
    problem: str = ""
    whole: bool = False
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Mapping[str, Any]:
        """The body, where it is a JSON object (some send it inside a list)."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        found = found[0] if isinstance(found, list) and found else found
        return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}


def watch() -> Exchange:
    """A fresh record, filled in by what this thread sends from now on."""
    _HERE.exchange = Exchange()
    return cast("Exchange", _HERE.exchange)


def transport() -> Any:
    """An httpx transport for all of litellm's clients. Proxies and certificates are as the environment has them."""
    import httpx

    inner = httpx.Client(follow_redirects=False)
    never = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)

    class Door(httpx.BaseTransport):
        """Sends a request and reads its answer whole."""

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            seen = getattr(_HERE, "exchange", None) or watch()
            seen.asked, seen.whole, seen.status = True, False, 0
            limit = request.extensions.get("timeout", {}).get("read") or float("inf")
            try:
                return _whole(request, seen, time.monotonic() + limit)
            except httpx.RequestError as error:
                late = isinstance(error, httpx.TimeoutException)
                seen.problem = f"no whole answer within {limit:g} s" if late else str(error)
                seen.reached = not isinstance(error, never)
                seen.lost = seen.reached and not late
                raise

    def _whole(request: httpx.Request, seen: Exchange, end: float) -> httpx.Response:
        answer = inner.send(request, stream=True, auth=None)
        body = bytearray()
        with closing(answer):
            seen.status, seen.headers = answer.status_code, dict(answer.headers)
            for piece in answer.iter_bytes():
                body += piece
                if time.monotonic() > end:
                    raise httpx.ReadTimeout("the deadline has passed", request=request)
                if len(body) > MOST_BYTES:
                    raise httpx.RemoteProtocolError(f"the answer has more than {MOST_BYTES} bytes", request=request)
        seen.whole, seen.body = True, bytes(body)
        gone = {"content-encoding", "content-length", "transfer-encoding", "location"}
        kept = [(name, value) for name, value in answer.headers.multi_items() if name.lower() not in gone]
        return httpx.Response(answer.status_code, headers=kept, content=seen.body, request=request)

    return Door()
