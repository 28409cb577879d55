"""What a review found: the one object every report, sink and gate decision is made from."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum

from agent_harness.types.base import JSON


class Proof(StrEnum):
    """What stands behind a finding, as code established it; a model never says it of itself."""

    PROVEN = "proven"
    """Its reproducer failed on head and passed on base, run again by the harness in fresh sandboxes."""
    VERIFIED = "verified"
    """Its quote was located, and every event it cites is of this run and holds what it is cited for."""
    UNVERIFIED = "unverified"
    """Neither. It is told, and never blocks."""


class Support(StrEnum):
    """What became of a statement that the change makes about itself."""

    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    NOT_CHECKED = "not_checked"


class Disposition(StrEnum):
    """Where a finding stands towards earlier rounds: WAIVED needs a reason and an expiry, and does not block."""

    NEW = "new"
    KNOWN = "known"
    WAIVED = "waived"


@dataclass(frozen=True, slots=True)
class ReviewFinding:
    """One finding. Lines are 1-based and were located by code from `quote`; `fingerprint` outlives moved lines."""

    title: str
    body: str
    severity: str
    """P0 (gravest) to P3."""
    kind: str
    path: str
    side: str
    """`head` or `base`: which tree `path` and the lines are of."""
    quote: str
    line: int
    end_line: int
    proof: Proof
    blocking: bool
    fingerprint: str
    evidence: tuple[int, ...] = ()
    """Sequence numbers of the events of this run that showed it."""
    reproducer: str = ""
    demoted: str = ""
    """Why it does not block although its severity would."""
    disposition: Disposition = Disposition.NEW
    waiver: str = ""
    note: str = ""
    """What code has to say of its evidence or reproducer, where those do not hold."""

    @property
    def counts(self) -> bool:
        """Whether a severity gate may heed it: code stands behind it, nobody waived it, the change brought it."""
        return self.proof is not Proof.UNVERIFIED and self.disposition is not Disposition.WAIVED and not self.demoted


@dataclass(frozen=True, slots=True)
class ReviewClaim:
    """A statement of the change's story, and what the reviewer could say of it."""

    statement: str
    support: Support
    why: str
    evidence: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReviewReport:
    """How a review ended. `verdict` is pass, fail or inconclusive; `exit` the process's exit code."""

    run: str
    base: str
    head: str
    verdict: str
    exit: int
    reason: str
    summary: str = ""
    confidence: float = 0.0
    """0 to 1, the reviewer's own word; decides nothing."""
    findings: tuple[ReviewFinding, ...] = ()
    claims: tuple[ReviewClaim, ...] = ()
    hunks: int = 0
    unseen: tuple[str, ...] = ()
    """Changed hunks (`path:first-last`) that were neither shown nor read; any of them forbids a pass."""
    unread: tuple[str, ...] = ()
    """Changed hunks that the base's configuration lets go unread (`review.unread`)."""
    blind: str = ""
    """The reviewer's own verdict before the story was told. A waiver sets `verdict` apart from it too."""
    told: str = ""
    """The reviewer's word after the story was told. It may add to the verdict, and takes nothing from it."""
    unheard: str = ""
    """Why there is no second word: the run ended before. The first one's findings stand; it makes no pass."""
    remembered: bool = False
    """The stored verdict of the same inputs; no model was asked."""
    receipt: JSON = field(default_factory=dict)

    def as_json(self) -> JSON:
        """The report as plain data without its receipt; `from_json` reads it back."""
        return {name: value for name, value in asdict(self).items() if name != "receipt"}

    @staticmethod
    def from_json(data: JSON) -> ReviewReport:
        """A report from what `as_json` gave."""
        from pydantic import TypeAdapter  # late: the nouns need it nowhere else

        return TypeAdapter(ReviewReport).validate_python(data)
