"""The receipt: what a result rests on. Every number in it is added up from the run's events, and from nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent_harness.audit.cost import TOKENS, Cost
from agent_harness.errors import Exit
from agent_harness.types import Event, dollars
from agent_harness.types.kinds import Kind

VERSION = 1


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


def _sums(events: Sequence[Event]) -> tuple[Cost, dict[str, Any]]:
    """What events add up to, and as plain data what of it are model calls; seconds to the millisecond."""
    cost = sum(map(Cost.of, events), Cost())
    answers = [event.data for event in events if event.kind == Kind.MODEL_ANSWERED]
    asked = [event.data for event in events if event.kind == Kind.MODEL_ASKED]
    return cost, {
        "calls": cost.steps + cost.failed_calls,
        "steps": cost.steps,
        "tokens": {name: getattr(cost, name) for name in TOKENS},
        "nanousd": cost.nanousd,
        "model_seconds": round(cost.model_seconds, 3),
        "routes": sorted({f"{data['route']}: {data['model']}" for data in answers}),
        "asked": sorted({f"{data['route']}: {data['model']}" for data in asked}),
        "prices": sorted({str(data["prices"]) for data in answers if data.get("prices")}),
        "unpriced": any(data.get("unpriced") for data in answers),
    }


def build(events: Sequence[Event]) -> dict[str, Any]:
    """The receipt of a run from its events so far."""
    started = next(e for e in events if e.kind == Kind.RUN_STARTED)
    workspace = next((e for e in events if e.kind == Kind.WORKSPACE_READY), None)
    candidate = next((e for e in reversed(events) if e.kind == Kind.CANDIDATE_CAPTURED), None)
    cost, whole = _sums(events)
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
            {key: e.data[key] for key in ("gate", "tree", "outcome", "reasons", "seconds")}
            | {"evidence": str(e.data.get("evidence", ""))}
            for e in events
            if e.kind == Kind.GATE_JUDGED
        ],
        "sandboxes": [
            {key: e.data[key] for key in ("purpose", "image")} for e in events if e.kind == Kind.SANDBOX_READY
        ],
        "answer": next((str(e.data["answer"]) for e in reversed(events) if e.kind == Kind.ANSWER_GIVEN), ""),
        "totals": whole
        | {
            "commands": cost.commands,
            "command_seconds": round(cost.command_seconds, 3),
            "seconds": round((events[-1].at_ms - started.at_ms) / 1000, 3),
        },
    }


def _role(ended: Event, events: Sequence[Event]) -> dict[str, Any]:
    role_run = ended.data["role_run"]
    started = next(e for e in events if e.kind == Kind.ROLE_STARTED and e.data["role_run"] == role_run)
    return {
        "role": ended.data["role"],
        "role_run": role_run,
        "mode": started.data["mode"],
        "ended": ended.data["ended"],
        "detail": ended.data["detail"],
        "prompts": started.data["prompts"],
        "limits": started.data["limits"],
        "seconds": ended.data["seconds"],
        **_sums([event for event in events if started.seq < event.seq < ended.seq])[1],
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
    totals = receipt["totals"]
    routes = ", ".join(totals["routes"] or [f"{one}, without an answer" for one in totals["asked"]]) or "none asked"
    note = " (recorded answers: no model was asked and nothing was paid)" if receipt["mode"] == "replay" else ""
    return routes + note


def _money(tally: dict[str, Any]) -> str:
    return "unpriced" if tally["unpriced"] and not tally["nanousd"] else dollars(tally["nanousd"])
