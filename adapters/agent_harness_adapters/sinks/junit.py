"""A review as JUnit XML: the verdict is one test case, each finding another; only what blocks is a failure."""

from xml.etree import ElementTree as ET

from agent_harness.types import ReviewReport
from agent_harness_adapters.sinks import blocks, clean, counted, flat, headline, notes, ordered, place, standing

ENDS = {"pass": "system-out", "fail": "failure"}


def render(report: ReviewReport, _root: str = "") -> str:
    """One suite. `clean` has already replaced what XML 1.0 does not know."""
    failures = counted(report)["blocking"] + (report.verdict == "fail")
    errors = int(report.verdict not in ENDS)
    totals = {"tests": len(report.findings) + 1, "failures": failures, "errors": errors}
    suite = ET.Element("testsuite", {"name": "agent-harness review"} | {key: str(n) for key, n in totals.items()})
    _case(suite, "review", "verdict", ENDS.get(report.verdict, "error"), "\n".join([headline(report), *notes(report)]))
    for one in ordered(report):
        text = f"{standing(one)}\n{place(one)}\n\n{clean(one.body)}\n\n{clean(one.quote)}"
        _case(suite, place(one), f"{one.severity} {flat(one.title)}", "failure" if blocks(one) else "system-out", text)
    ET.indent(suite)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suite, encoding="unicode")}\n'


def _case(suite: ET.Element, group: str, name: str, end: str, text: str) -> None:
    case = ET.SubElement(suite, "testcase", {"classname": group, "name": name})
    told = ET.SubElement(case, end, {} if end == "system-out" else {"message": flat(text), "type": end})
    told.text = text
