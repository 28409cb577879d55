"""The receipt: what a result rests on. Every number in it is added up from the run's events, and from nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_harness.errors import Exit
from agent_harness.types import Event, dollars
from agent_harness.types.kinds import Kind

VERSION = 1
USAGE = ("input", "output", "cache_read", "cache_write", "reasoning")


@dataclass(frozen=True, slots=True)
class RunReport:
    """How one attempt at an item ended, for the person who started it."""

    item: str
    run: str
    outcome: str
    exit: Exit
    reason: str
    receipt: dict[str, Any]
    branch: str = ""
    commit: str = ""
    diff: bytes = b""


@dataclass(slots=True)
class _Tally:
    """Sums of one role's (or the whole run's) model calls."""

    calls: int = 0
    steps: int = 0
    nanousd: int = 0
    seconds: float = 0.0
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(USAGE, 0))
    routes: set[str] = field(default_factory=set)
    prices: set[str] = field(default_factory=set)
    unpriced: bool = False

    def add(self, event: Event) -> None:
        """Count one answered or failed call; a failed one costs what its event says, and is no step."""
        data = event.data
        self.calls += 1
        self.nanousd += data.get("nanousd", 0)
        self.seconds += data.get("seconds", 0.0)
        for name in USAGE:
            self.tokens[name] += data.get("usage", {}).get(name, 0)
        if event.kind != Kind.MODEL_ANSWERED:
            return
        self.steps += 1
        self.routes.add(f"{data['route']}: {data['model']}")
        self.unpriced = self.unpriced or bool(data.get("unpriced"))
        if data.get("prices"):
            self.prices.add(str(data["prices"]))

    def as_json(self) -> dict[str, Any]:
        """Plain data; seconds to the millisecond."""
        return {
            "calls": self.calls,
            "steps": self.steps,
            "tokens": dict(self.tokens),
            "nanousd": self.nanousd,
            "model_seconds": round(self.seconds, 3),
            "routes": sorted(self.routes),
            "prices": sorted(self.prices),
            "unpriced": self.unpriced,
        }


def build(events: Sequence[Event]) -> dict[str, Any]:
    """The receipt of a run from its events so far."""
    started = next(e for e in events if e.kind == Kind.RUN_STARTED)
    calls = [e for e in events if e.kind in {Kind.MODEL_ANSWERED, Kind.MODEL_FAILED}]
    commands = [e for e in events if e.kind == Kind.COMMAND_ENDED]
    workspace = next((e for e in events if e.kind == Kind.WORKSPACE_READY), None)
    candidate = next((e for e in reversed(events) if e.kind == Kind.CANDIDATE_CAPTURED), None)
    whole = _Tally()
    for event in calls:
        whole.add(event)
    return {
        "receipt": VERSION,
        "item": started.item,
        "run": started.run,
        **{key: started.data[key] for key in ("generation", "source", "mode", "version", "config")},
        "base": workspace.data["base"] if workspace else "",
        "tree": candidate.data["tree"] if candidate else "",
        "files": candidate.data["files"] if candidate else 0,
        "roles": [_role(event, events) for event in events if event.kind == Kind.ROLE_ENDED],
        "gates": [
            {key: e.data[key] for key in ("gate", "tree", "outcome", "reasons", "seconds")} | {"evidence": _evidence(e)}
            for e in events
            if e.kind == Kind.GATE_JUDGED
        ],
        "sandboxes": [
            {key: e.data[key] for key in ("purpose", "image")} for e in events if e.kind == Kind.SANDBOX_READY
        ],
        "answer": next((str(e.data["answer"]) for e in reversed(events) if e.kind == Kind.ANSWER_GIVEN), ""),
        "totals": whole.as_json()
        | {
            "commands": len(commands),
            "command_seconds": round(sum(e.data["seconds"] for e in commands), 3),
            "seconds": round((events[-1].at_ms - started.at_ms) / 1000, 3),
        },
    }


def _evidence(event: Event) -> str:
    return str(event.data.get("evidence", ""))


def _role(ended: Event, events: Sequence[Event]) -> dict[str, Any]:
    role_run = ended.data["role_run"]
    started = next(e for e in events if e.kind == Kind.ROLE_STARTED and e.data["role_run"] == role_run)
    tally = _Tally()
    for event in events:
        inside = started.seq < event.seq < ended.seq
        if inside and event.kind in {Kind.MODEL_ANSWERED, Kind.MODEL_FAILED}:
            tally.add(event)
    return {
        "role": ended.data["role"],
        "role_run": role_run,
        "mode": started.data["mode"],
        "ended": ended.data["ended"],
        "detail": ended.data["detail"],
        "prompts": started.data["prompts"],
        "limits": started.data["limits"],
        "seconds": ended.data["seconds"],
        **tally.as_json(),
    }


def render(receipt: dict[str, Any]) -> str:
    """The receipt for people, some twelve lines."""
    if not receipt:
        return "no receipt was issued for this run"
    totals, base, tree = receipt["totals"], receipt["base"][:12], receipt["tree"][:12]
    lines = [
        f"receipt     item {receipt['item']}  run {receipt['run']}  generation {receipt['generation']}",
        f"base        {base or '-'}  tree {tree or '-'}  files changed {receipt['files']}",
        f"model       {_mode(receipt)}",
    ]
    lines += [
        f"{role['role']:<12}{role['ended']}, {role['steps']} turns, "
        f"{role['tokens']['input']} + {role['tokens']['output']} tokens, {_money(role)}, {role['seconds']:.1f} s"
        for role in receipt["roles"]
    ]
    lines += [f"gate        {g['gate']}: {g['outcome']} ({g['seconds']:.1f} s)" for g in receipt["gates"]]
    if receipt.get("answer"):
        lines.append(f"answer      {receipt['answer'][:19]}, in whole: agent-harness queue show {receipt['item']}")
    lines.append(
        f"total       {totals['steps']} turns, {totals['tokens']['input']} + {totals['tokens']['output']} tokens, "
        f"{_money(totals)}, {totals['commands']} commands, {totals['seconds']:.1f} s"
    )
    return "\n".join(lines)


def _mode(receipt: dict[str, Any]) -> str:
    routes = ", ".join(receipt["totals"]["routes"]) or "none asked"
    note = " (recorded answers: no model was asked and nothing was paid)" if receipt["mode"] == "replay" else ""
    return routes + note


def _money(tally: dict[str, Any]) -> str:
    return "unpriced" if tally["unpriced"] and not tally["nanousd"] else dollars(tally["nanousd"])
