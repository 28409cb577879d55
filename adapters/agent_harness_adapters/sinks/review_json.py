"""A review as JSON: the field's common review schema, and beside it everything of ours. Nothing is cut."""

from dataclasses import asdict

from agent_harness.types import Proof, ReviewFinding, ReviewReport
from agent_harness_adapters.sinks import counted, dumped, wire

CONFIDENCE = {Proof.PROVEN: 1.0, Proof.VERIFIED: 0.75, Proof.UNVERIFIED: 0.25}
"""What the common schema wants as a number: the proof, put in order. It is no probability."""
CORRECTNESS = {"pass": "patch is correct", "fail": "patch is incorrect"}


def render(report: ReviewReport, root: str = "") -> str:
    """The whole report. `root` is the folder that absolute paths begin with."""
    return dumped(
        asdict(report)
        | counted(report)
        | {
            "findings": [_finding(one, root) for one in report.findings],
            "overall_correctness": CORRECTNESS.get(report.verdict, "review is inconclusive"),
            "overall_explanation": report.summary or report.reason,
            "overall_confidence_score": report.confidence,
        }
    )


def _finding(one: ReviewFinding, root: str) -> dict[str, object]:
    return asdict(one) | {
        "path": wire(one.path),
        "confidence_score": CONFIDENCE[one.proof],
        "priority": int(one.severity[1:]) if one.severity[1:].isdecimal() else 3,
        "code_location": {
            "absolute_file_path": f"{root.rstrip('/')}/{wire(one.path)}",
            "line_range": {"start": one.line, "end": max(one.line, one.end_line)},
        },
    }
