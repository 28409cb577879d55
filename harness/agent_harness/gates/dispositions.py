"""Where a finding stands towards earlier rounds and towards waivers, and what verdict follows. Code alone says so."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

from agent_harness.errors import ConfigError, Exit
from agent_harness.gates.hunks import Hunk
from agent_harness.types import Disposition, Proof, ReviewFinding, ReviewReport, canonical, digest
from agent_harness.types.text import lines_of

WAIVERS = ".agent-harness/waivers.toml"
"""Read from the base alone: a change cannot waive what is found in it."""
OUTSIDE = "it lies outside the change"
_FIELDS = {"fingerprint": str, "reason": str, "expires": date}
_NAMED = 20


@dataclass(frozen=True, slots=True)
class Round:
    """An earlier review of the same work: its report, what came to the change since, and the base it has now."""

    report: ReviewReport
    since: tuple[Hunk, ...]
    base: str

    def place(self, finding: ReviewFinding) -> ReviewFinding:
        """The finding as known, or as new where new hunks brought it. What that round could have raised and did not
        is told, but blocks only when it is proven: the same lines are not judged by another measure each time."""
        if finding.fingerprint in {one.fingerprint for one in self.report.findings}:
            return replace(finding, disposition=Disposition.KNOWN)
        near = [hunk for hunk in self.since if hunk.path == finding.path]
        # lines of base are not of what `since` starts from: there the file has to do
        if near and (finding.side == "base" or any(h.touches("head", finding.line, finding.end_line) for h in near)):
            return finding
        # lines that were no part of the change then, or that nobody had seen, were not judged
        if self.report.base != self.base or self.report.unseen:
            return finding
        known = replace(finding, disposition=Disposition.KNOWN)
        if finding.proof is Proof.PROVEN or finding.demoted:
            return known
        why = f"run {self.report.run} judged these lines and did not raise it"
        return replace(known, demoted=why, blocking=False)

    def standing(self, found: Sequence[ReviewFinding]) -> list[ReviewFinding]:
        """What that round blocked on and this one does not name, in files that are the same as then."""
        named, touched = {one.fingerprint for one in found}, {hunk.path for hunk in self.since}
        return [
            replace(one, disposition=Disposition.KNOWN, evidence=())
            for one in self.report.findings
            if one.blocking and one.fingerprint not in named and one.path not in touched
        ]


def fingerprint(path: str, kind: str, quote: str, data: bytes, line: int) -> str:
    """What a finding is known by in other rounds: moved lines and other white space do not change it. The context is
    the nearest line above that is less indented: what the quoted text stands in."""
    lines = lines_of(data)
    depth = _indent("".join(lines[line - 1 : line]))  # none of what is no text file
    above = (one for one in reversed(lines[: line - 1]) if one.strip() and _indent(one) < depth)
    texts = (path, kind, " ".join(quote.split()), " ".join(next(above, "").split()))
    return digest(canonical(texts))[7:39]


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def waivers(raw: bytes | None, now_ms: int) -> dict[str, str]:
    """Fingerprint and reason of each waiver in force. Raises ConfigError for one without reason or expiry."""
    try:
        table = tomllib.loads((raw or b"").decode())
        entries = table.pop("waiver", [])
        beside = f"unknown: {', '.join(table)}" if table else ""
        told = [_waiver(one, beside) for one in entries or [table] * bool(table)]
        return {name: reason for name, reason, expires in told if expires >= _today(now_ms)}
    except (ValueError, TypeError, AttributeError) as fault:
        how = 'each [[waiver]] has fingerprint = "...", reason = "..." and expires = YYYY-MM-DD'
        raise ConfigError(f"{WAIVERS} of the base cannot be used", why=str(fault), next=how) from fault


def _today(now_ms: int) -> date:
    return datetime.fromtimestamp(now_ms / 1000, UTC).date()


def _waiver(entry: Mapping[str, Any], beside: str) -> tuple[str, str, date]:
    for name, kind in _FIELDS.items():
        if type(entry.get(name)) is not kind or not str(entry[name]).strip():
            raise ValueError(f"the {name} of a waiver is missing, or is no {'date' if kind is date else 'text'}")
    unknown = entry.keys() - _FIELDS.keys()
    if beside or unknown:
        raise ValueError(beside or f"unknown: {', '.join(sorted(unknown))}")
    return entry["fingerprint"], entry["reason"], entry["expires"]


def settle(raw: ReviewReport, waived: Mapping[str, str]) -> ReviewReport:
    """The report with its verdict. `raw` has the reviewer's own word as verdict; a pass is what is left when nothing
    blocks, all was seen, and nothing that would block is merely unproven."""
    findings = tuple(_waived(one, waived) for one in raw.findings)
    blocking = [one for one in findings if one.blocking]
    open_ = [one for one in findings if one.demoted.startswith("unverified") and not one.waiver]
    if blocking:
        told = "; ".join(f"{one.severity} {one.path}:{one.line} {one.title}" for one in blocking)
        return replace(raw, findings=findings, verdict="fail", exit=int(Exit.FAILED), reason=told)
    if raw.unheard:
        return replace(raw, findings=findings, verdict="inconclusive", reason=raw.unheard)
    if raw.unseen:
        named = ", ".join(raw.unseen[:_NAMED]) + (" ..." if len(raw.unseen) > _NAMED else "")
        why = f"{len(raw.unseen)} of {raw.hunks} changed hunks were neither shown nor read: {named}"
    elif raw.verdict == "fail" and open_:
        why = f"the reviewer fails it, but nothing it says is verified ({open_[0].title}: {open_[0].demoted})"
    else:
        return replace(raw, findings=findings, verdict="pass", exit=int(Exit.OK), reason=raw.summary)
    return replace(raw, findings=findings, verdict="inconclusive", exit=int(Exit.INCONCLUSIVE), reason=why)


def _waived(one: ReviewFinding, waived: Mapping[str, str]) -> ReviewFinding:
    reason = waived.get(one.fingerprint)
    return one if reason is None else replace(one, disposition=Disposition.WAIVED, blocking=False, waiver=reason)
