"""Plans and checklists that nobody wrote by hand: read back as they were, and no line lost in silence."""

import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from agent_harness.errors import NothingToDo
from agent_harness.importing import parse
from agent_harness.plans import MARK, Plan, PlanItem, read, tidy, write
from agent_harness.types import Check, CheckKind, Deliverable

BITS = ["# a", "## Items", "### [ ] x: y", "#### Acceptance", "####  Risk", "#### Notes", "```", "````py", "~~~", "<!--", "-->", "- [ ] b", "\\# c", "\\\\```", "", "  ", "    ```", "`x`", "a  b", "1. z", "é\u2003", MARK]  # fmt: skip
text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
line = st.one_of(st.sampled_from(BITS), text).map(lambda one: " ".join(tidy(one).split())).filter(bool)
prose = st.lists(st.one_of(st.sampled_from(BITS), text), max_size=9).map(lambda many: tidy("\n".join(many)).strip())
code = st.one_of(text, st.sampled_from(["`a`", "a ``b` c", " x", "` `", "echo  'a  b'"])).map(tidy).filter(str.strip)
name = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,9}", fullmatch=True)


def lines(of=line):
    return st.lists(of, max_size=3).map(tuple)


item = st.builds(
    PlanItem,
    id=st.just(""),
    title=line,
    brief=prose,
    done=st.booleans(),
    deliverable=st.sampled_from(Deliverable),
    acceptance=lines(),
    checks=lines(st.builds(Check, code.map(str.strip), st.sampled_from(CheckKind))),
    depends_on=lines(name),
    risk=st.one_of(st.just(""), line),
    paths=lines(code),
    allow=lines(code),
    evidence=lines(),
)


@st.composite
def plans(draw):
    ids = draw(st.lists(name, max_size=4, unique=True))
    items = tuple(replace(draw(item), id=one) for one in ids)
    return Plan(draw(line), draw(prose), items, draw(lines()), draw(lines()), draw(lines()))


@settings(max_examples=200, deadline=None)
@given(plans())
def test_a_written_plan_is_read_back_as_it_was(plan):
    assert read(write(plan)) == (plan, [])


LINES = ["# {}", "## {}", "### {}", "### [ ] {}", "#### {}", "#### Checks", "- [ ] {}", "  - [x] {}", "\t1. [ ] {}", "* {}", "  {}", "{}", "```", "<!-- {}", "{} -->", "", "## Items", "## Evidence"]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(LINES), max_size=25), st.sampled_from(["- [ ] first", MARK]))
def test_no_line_is_lost_in_silence(bits, first):
    lines = [first, *(bit.format(f"word{number}x") for number, bit in enumerate(bits))]
    try:
        source = parse("\n".join(lines))
    except NothingToDo:
        return
    plan, named = source.plan, {one.line for one in source.skipped}
    taken = "\n".join([plan.goal, plan.context, *plan.evidence, *(f"{one.title}\n{one.brief}\n{one.checks}" for one in plan.items)])  # fmt: skip
    for number, line in enumerate(lines, 1):
        word = re.search(r"word\d+x", line)
        assert not word or number in named or word[0] in taken, (number, line)
