"""What a model gets to see of a command: decoded, clean, without secrets, and cut only where it says so."""

from collections.abc import Callable
from dataclasses import dataclass

from agent_harness.types import CommandEnd, CommandResult
from agent_harness.types.text import clean

_LINE_EDGE = 4096  # how far the edge of a gap is taken back to a line's end, so that no half of a secret stays
_LONG_LINE = 500  # a line up to so long is not broken at the edge of what is shown
_COMMAND = 80  # characters of a command in the line that stands for its output
_BARE_EDGE = 1024  # taken off where there is no line's end so near


@dataclass(frozen=True, slots=True)
class Seen:
    """An observation: `status` says how the command ended, `output` what it printed (cut where it says so): `size`
    bytes in all, kept whole in the file `saved_to` where there is one."""

    status: str
    output: str
    size: int = 0
    saved_to: str = ""

    @property
    def text(self) -> str:
        """What goes into the history."""
        return f"[{self.status}]\n{self.output}" if self.output.strip() else f"[{self.status}, no output]"

    def brief(self, command: str) -> str:
        """One line that stands for it once it is old; the whole text where no file has it."""
        if not self.saved_to:
            return self.text
        first = clean(" ".join(command.split()))
        shown = first if len(first) <= _COMMAND else first[: _COMMAND - 1] + "…"
        return f"[{self.status}; {self.size} bytes elided: the output of `{shown}` is in {self.saved_to}]"


def seen(result: CommandResult, timeout_s: float, redact: Callable[[str], str], limit: int) -> Seen:
    """The observation of a command, of at most about `limit` bytes: a fifth from its head, the rest from its tail."""

    def tidy(raw: bytes) -> bytes:
        return redact(clean(raw.decode("utf-8", "replace"))).encode()

    def observed(output: str) -> Seen:
        return Seen(_status(result, timeout_s), output, result.total_bytes, result.saved_to)

    if result.cut_bytes <= 0:
        whole = tidy(result.head + result.tail)
        if len(whole) <= limit:
            return observed(whole.decode())
        head, tail, cut = whole, whole, len(whole)
    else:
        kept_head, kept_tail = _without_edge(result.head, -1), _without_edge(result.tail, 1)
        cut = result.total_bytes - len(kept_head) - len(kept_tail)
        head, tail = tidy(kept_head), tidy(kept_tail)
        if len(head) + len(tail) <= limit:
            return observed(_joined(head, tail, cut, result.saved_to))
        cut += len(head) + len(tail)
    head, tail = _lines(head[: limit // 5], tail[-(limit - limit // 5) :])
    return observed(_joined(head, tail, cut - len(head) - len(tail), result.saved_to))


def _lines(head: bytes, tail: bytes) -> tuple[bytes, bytes]:
    """Both without the half of a line at the gap, whose place moves with the width of a duration before it."""
    end, begin = head.rfind(b"\n", max(0, len(head) - _LONG_LINE)) + 1, tail.find(b"\n", 0, _LONG_LINE) + 1
    return head[: end or None], tail[begin:]


def _without_edge(raw: bytes, side: int) -> bytes:
    """Bytes beside a gap, back to a whole line: what was cut there may have been the other half of a secret."""
    if side < 0:
        at = raw.rfind(b"\n", max(0, len(raw) - _LINE_EDGE))
        return raw[: at + 1] if at >= 0 else raw[: max(0, len(raw) - _BARE_EDGE)]
    at = raw.find(b"\n", 0, _LINE_EDGE)
    return raw[at + 1 :] if at >= 0 else raw[_BARE_EDGE:]


def _joined(head: bytes, tail: bytes, cut: int, saved_to: str) -> str:
    where = f"whole output: {saved_to}" if saved_to else "redirect it to a file under /tmp and search that"
    first, last = head.decode("utf-8", "ignore"), tail.decode("utf-8", "ignore")
    return f"{first.rstrip()}\n[... {cut} bytes cut; {where} ...]\n{last.lstrip(chr(10))}"


def _status(result: CommandResult, timeout_s: float) -> str:
    """How it ended, without durations: the same command must read the same when a recording is replayed."""
    return _ENDS[result.end].format(code=result.exit_code, seconds=f"{timeout_s:.0f}")


_ENDS = {
    CommandEnd.EXITED: "exit code {code}",
    CommandEnd.SIGNALLED: "killed by a signal, exit code {code}",
    CommandEnd.TIMEOUT: "timed out after {seconds} s; it and all it started were killed",
    CommandEnd.IDLE: "killed: it printed nothing for too long",
    CommandEnd.OUT_OF_MEMORY: "killed: out of memory; the sandbox's memory limit was reached",
}
