"""Reports as a review could end in, tame ones and ones that a hostile model or repository made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent_harness.types import Disposition, Proof, ReviewClaim, ReviewFinding, ReviewReport, Support

FINDING = ReviewFinding(
    title="split(1000, 3) loses a cent",
    body="The remainder is dropped: ran it, got 999.",
    severity="P1",
    kind="bug",
    path="bill/split.py",
    side="head",
    quote="    share = total // people\n",
    line=12,
    end_line=13,
    proof=Proof.VERIFIED,
    blocking=True,
    fingerprint="f" * 32,
    evidence=(4, 9),
)
REPORT = ReviewReport(
    run="r0123456789",
    base="a" * 40,
    head="b" * 40,
    verdict="fail",
    exit=1,
    reason="P1 bill/split.py:12 split(1000, 3) loses a cent",
    summary="The shares no longer add up.",
    confidence=0.8,
    hunks=3,
)

HOSTILE = (
    "plain",
    "line\nbreak\r\nand\rreturn",
    "::set-output name=verdict::pass\n::error::forged\n##[add-mask]x",
    "\x1b[31mred\x1b]0;title\x07 \x00 \x08 \x85 \u2028 \u202e",
    "]]> <![CDATA[ </testcase></testsuite> &amp; <x>",
    "</details><script>alert(1)</script><img src=x onerror=y>",
    "@everyone fixes #1 owner/repo#2 https://evil.example [a](javascript:x) [b](1) {0} | `` ``` ~~~ ````` $x$",
    "```\nout of the fence\n```suggestion\nrm -rf /\n```",
    "lone \udc80 \ud800 halves \udfff",
    "\ufffe\uffff non-characters",
    "日本語 ünï 😀" * 20,
    "x" * 1_000_000,
    "`" * 5_000,
    "",
)
PATHS = (
    "a b/ü%20.py",
    "new\nline.py",
    "-rf",
    "--output=x",
    "per%cent,colon:comma",
    "raw-\udcff.txt",
    "half-\ud800",
    "/etc/passwd",
    "q?x=1#frag",
    "::error::x",
)


def finding(**fields: Any) -> ReviewFinding:
    return replace(FINDING, **fields)


def report(*findings: ReviewFinding, **fields: Any) -> ReviewReport:
    return replace(REPORT, findings=findings, **fields)


UNVERIFIED = finding(proof=Proof.UNVERIFIED, severity="P0", title="Made up from nothing", fingerprint="u" * 32)
"""Of a fabricating reviewer: it says it blocks, and nothing holds it up."""
WAIVED = finding(disposition=Disposition.WAIVED, waiver="legacy, until 2030-01-01: [see](x)", fingerprint="w" * 32)
SMALL = finding(severity="P3", blocking=False, fingerprint="s" * 32, side="base")
TAME = report(FINDING, UNVERIFIED, WAIVED, SMALL, unseen=("big.py:1-900",), blind="pass")


def hostile() -> ReviewReport:
    """Every text in every field, every path."""
    findings = [
        finding(
            title=text,
            body=text,
            quote=text,
            kind=text[:60],
            demoted=text[:80],
            waiver=text[:80],
            reproducer=text[:500],
            path=PATHS[number % len(PATHS)],
            fingerprint=f"{number % 7}",
            proof=list(Proof)[number % 3],
            disposition=list(Disposition)[number % 2],
            severity=f"P{number % 4}",
        )
        for number, text in enumerate(HOSTILE)
    ]
    findings += [finding(path=path, title=path, fingerprint=path) for path in PATHS]
    claims = tuple(ReviewClaim(text[:3000], Support.UNSUPPORTED, text[:3000]) for text in HOSTILE)
    texts = {"reason": "\n".join(HOSTILE), "summary": HOSTILE[2], "blind": "pass"}
    return report(*findings, claims=claims, unseen=tuple(PATHS), **texts)


def many(count: int) -> ReviewReport:
    """More findings than any host takes."""
    names = [f"{number:06d}" for number in range(count)]
    return report(*(finding(title=f"finding {name}", fingerprint=name, body="text " * 40) for name in names))
