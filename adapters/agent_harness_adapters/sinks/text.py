"""A review for a person's terminal. No line of a model's text begins a line: none can pass for one of ours."""

from agent_harness.types import ReviewReport
from agent_harness_adapters.sinks import clean, flat, headline, notes, ordered, place, standing


def render(report: ReviewReport, _root: str = "") -> str:
    """The verdict, then each finding with the words it is about."""
    told = [f"review    {report.base[:12]}..{report.head[:12]}: {headline(report)}"]
    told += [f"note      {one}" for one in notes(report)]
    for one in ordered(report):
        told += ["", f"{one.severity} {place(one)}: {flat(one.title)} [{standing(one)}]"]
        told += [f"    > {text}" for text in clean(one.quote).splitlines()]
        told += [f"    | {text}" for text in clean(one.body).splitlines()]
    return "\n".join(told)
