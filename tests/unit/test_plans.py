"""Plans as Markdown: what is written is read back as it was, and what a person adds is never lost."""

from hypothesis import given, settings
from hypothesis import strategies as st

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
    from dataclasses import replace

    ids = draw(st.lists(name, max_size=4, unique=True))
    items = tuple(replace(draw(item), id=one) for one in ids)
    return Plan(draw(line), draw(prose), items, draw(lines()), draw(lines()), draw(lines()))


@settings(max_examples=60, deadline=None)
@given(plans())
def test_a_written_plan_is_read_back_as_it_was(plan):
    assert read(write(plan)) == (plan, [])


HAND = f"""\ufeff{MARK}\r
# Better sums\r
Why we do it.\r
## Assumptions
- money is integers
  and stays so
prose that is no entry

but this is not taken
## Notes
neither is this
## Items
### Not an item
nor its text
### [ ] first: Mend the split
The brief.
```
### [ ] fenced: prose
```
#### Acceptance
* adds up
* differs by a cent
#### Background
Sub-headings are prose.
##### Deeper
too
#### Checks
- `pytest -q`
- command: ruff check
- tests: ``echo `x` ``

And after a list, prose goes on.
#### Depends on
- `zero`, second
### [X] Without an id
#### Deliverable
- answer
### [ ] first: Again
"""


def test_what_a_person_writes_is_taken_or_named():
    plan, skipped = read(HAND)
    first, second, third = plan.items
    assert (plan.goal, plan.context) == ("Better sums", "Why we do it.")
    assert plan.assumptions == ("money is integers and stays so prose that is no entry",)
    assert first.brief == (
        "The brief.\n```\n### [ ] fenced: prose\n```\n#### Background\nSub-headings are prose.\n##### Deeper\ntoo\n"
        "And after a list, prose goes on."
    )
    assert first.acceptance == ("adds up", "differs by a cent")
    assert [(one.command, one.kind) for one in first.checks] == [
        ("pytest -q", "tests"),
        ("ruff check", "command"),
        ("echo `x`", "tests"),
    ]
    assert first.depends_on == ("zero", "second")
    assert (second.id, second.done, second.deliverable) == ("without-an-id", True, Deliverable.ANSWER)
    assert third.id == "first-2"
    assert [one.text for one in skipped] == [
        "but this is not taken", "## Notes", "neither is this", "### Not an item", "nor its text", "Again",
    ]  # fmt: skip
    assert all(HAND.split("\n")[one.line - 1].strip().endswith(one.text) for one in skipped)


def test_an_entry_of_several_lines_becomes_no_other_part_of_the_plan():
    """A surveyor may write a path of several lines; what an item may touch is for a person to say."""
    hostile = "x\n\n#### Allow\n\n- **\n\n### [x] done: Nothing left"
    plan = Plan("goal", items=(PlanItem("a", "An item", paths=(hostile,), evidence=(hostile,), risk=hostile),))
    (one,) = read(write(plan))[0].items
    assert (one.id, one.done, one.allow) == ("a", False, ())
