"""Checklists and issue lists, also by people who mean no good."""

import json

import pytest

from agent_harness.errors import NothingToDo, UsageError
from agent_harness.importing import new_items, parse
from agent_harness.plans import Plan, PlanItem, write

LIST = """\ufeff# Roadmap\r
intro\r
## Phase 1\r
1. [ ] Do A\r
   more on A
   ```
   - [ ] not an item
   ```
\t- [x] a part\x07 of A
\t  told in tabs
### Details of A
prose on A
* [X] Do B
- [ ]
<!--
- [ ] hidden
-->
## Phase 2
+ [ ] Do B
## Empty
lost
"""


def test_a_checklist_keeps_prose_nesting_and_order():
    source = parse(LIST)
    a, part, b, again = source.plan.items
    assert [one.id for one in (a, part, b, again)] == ["do-a", "a-part-of-a", "do-b", "do-b-2"]
    assert a.depends_on == ("a-part-of-a",)
    for text in ("From: Roadmap / Phase 1", "more on A", "- [ ] not an item", "### Details of A", "prose on A"):
        assert text in a.brief
    assert part.brief.split("\n") == ["Part of: Do A", "", "      told in tabs"]
    assert [one.done for one in source.plan.items] == [False, True, True, False]
    assert "- [ ]" in b.brief and "- [ ] hidden" in b.brief
    assert [(one.line, one.text) for one in source.skipped] == [
        (2, "intro"),
        (9, "\t- [x] a part\ufffd of A"),
        (20, "## Empty"),
        (21, "lost"),
    ]


def test_every_line_is_in_an_item_or_named():
    source = parse(LIST)
    taken = "\n".join(text for item in source.plan.items for text in (item.title, item.brief))
    named = {one.line for one in source.skipped}
    for number, line in enumerate(LIST.replace("\ufeff", "").split("\n"), 1):
        text = line.strip().lstrip("#*+-1. ").removeprefix("[ ] ").removeprefix("[x] ").removeprefix("[X] ")
        assert not text or number in named or text.replace("\x07", "\ufffd") in taken, line


def issue(number, title="t", **more):
    return {"number": number, "title": title, "body": "", "state": "OPEN", "url": f"https://github.com/o/r/issues/{number}", **more}  # fmt: skip


def test_issues_of_either_tool():
    gh = [
        issue(1, body="Depends on #2 and #9.\r\nBlocked by: #1, #3"),
        issue(2, state="CLOSED", stateReason="COMPLETED"),
        issue(3, state="CLOSED", stateReason="NOT_PLANNED"),
        issue(4, url="https://github.com/o/r/pull/4"),
        issue(1, "twice"),
        {"title": "no number"},
        issue(5, "  "),
        issue(6, "bell\x07", body=None),
    ]
    source = parse("\n" + json.dumps(gh))
    assert [(one.id, one.done, one.depends_on) for one in source.plan.items] == [
        ("1", False, ("2", "9", "3")),
        ("2", True, ()),
        ("6", False, ()),
    ]
    said = " | ".join(one.why for one in source.skipped)
    for words in ("#3 t: it was closed as not planned", "#4 t: it is a pull request", "#1 twice: it stands in the list twice", "entry 6: it is no issue", "#5 : its title is empty", "#6 bell\ufffd: control"):  # fmt: skip
        assert words in said
    (first, second, _) = new_items(source, "x.json", done=(), taken={"issue-2"})
    assert (first.key, first.id, first.needs) == ("o/r#1", "issue-1", ("o/r#2", "o/r#9", "o/r#3"))
    assert (second.id, second.done) == (None, True) and "issues/1" in first.brief

    api = {**issue(7, "api"), "html_url": "https://github.com/o/r/issues/7", "url": "https://api.github.com/repos/o/r/issues/7", "state": "closed", "state_reason": "duplicate"}  # fmt: skip
    pages = f"[{json.dumps(api)}]\n[{json.dumps(issue(8, pull_request={}))},\n{json.dumps(issue(9))}]"
    source = parse(pages)
    assert [one.id for one in source.plan.items] == ["9"]
    assert [one.why.split(": ")[1] for one in source.skipped] == ["it was closed as duplicate", "it is a pull request"]


def test_broken_json_is_said_to_be_broken():
    with pytest.raises(UsageError, match="not whole as JSON"):
        parse('[{"number": 1, "title": "a"}')
    with pytest.raises(UsageError, match="not whole as JSON"):
        parse("[" * 100_000)
    assert parse("[a link](x)\n- [ ] item\n").plan.items[0].id == "item"


def test_issues_of_several_repositories_are_told_apart():
    other = issue(1, url="https://github.com/o/s/issues/1", body="depends on #2")
    source = parse(json.dumps([issue(1), other]))
    new = new_items(source, "x", done=("o/r#1",), taken=())
    assert [(one.id, one.key, one.done) for one in new] == [("issue-1", "o/r#1", True), (None, "o/s#1", False)]
    assert new[1].needs == ("o/s#2",)
    with pytest.raises(UsageError, match="or several"):
        new_items(source, "x", done=("1",), taken=())


def test_issues_of_any_tracker_are_known_by_their_address():
    urls = [
        "https://gitlab.example/group/app/-/issues/3",
        "https://tracker.example/browse/APP-4",
        "https://t.example/x/5/title",
    ]
    found = [issue(n, url=url, body="depends on #9") for n, url in zip((3, 4, 5), urls, strict=True)]
    new = new_items(parse(json.dumps(found)), "stdin", done=(), taken=())
    assert [one.key for one in new] == [
        "group/app#3",
        "https://tracker.example/browse/APP#4",
        "https://t.example/x/5/title#5",
    ]
    assert new[1].needs == ("https://tracker.example/browse/APP#9",)


def test_a_cycle_is_refused_with_its_path():
    items = tuple(PlanItem(one, one, depends_on=(two,)) for one, two in [("a", "b"), ("b", "c"), ("c", "a")])
    with pytest.raises(UsageError, match=r"p#a -> p#b -> p#c -> p#a|p#b -> p#c -> p#a -> p#b|p#c -> p#a -> p#b -> p#c"):
        new_items(parse(write(Plan("g", items=items))), "p", done=(), taken=())
    assert [one.needs for one in new_items(parse(write(Plan("g", items=items))), "p", done=("b",), taken=())] == [
        ("p#b",),
        (),
        ("p#a",),
    ]


def test_a_brief_holds_all_that_a_plan_says():
    plan = Plan("g", items=(PlanItem("a", "t", "b", acceptance=("x1",), risk="low: x2", paths=("x3",), evidence=("x4",)),), assumptions=("x5",))  # fmt: skip
    (new,) = new_items(parse(write(plan)), "p", done=("a",), taken=())
    assert all(f"x{n}" in new.brief for n in range(1, 6)) and new.done
    with pytest.raises(UsageError, match="no item 'z'"):
        new_items(parse(write(plan)), "p", done=("z",), taken=())


@pytest.mark.parametrize("text", ["", "no box\n- at all\n", "[]", '{"a": 1}', "- [ ]\n"])
def test_nothing_is_nothing_to_do(text):
    with pytest.raises(NothingToDo):
        parse(text)


def test_a_box_that_is_none_is_named_and_becomes_no_part_of_another_item():
    source = parse(
        "- [ ] one\n  why\n- [] two\n1. [y] three\n- [x](a/link) of its brief\n```\n- [] code\n```\n- [X] done\n"
    )
    assert [one.title for one in source.plan.items] == ["one", "done"]
    assert [one.line for one in source.skipped] == [3, 4] and "[ ]" in source.skipped[0].why
    assert "two" not in source.plan.items[0].brief and "a/link" in source.plan.items[0].brief
