"""The cases of the reviewers' benchmark: the same for the same seed, and true in every line."""

import ast
import difflib

import pytest

from agent_harness.bench.cases import ORDERS, Framing, Kind, make
from agent_harness.bench.mutate import Source, apply, faults, renames
from agent_harness.errors import UsageError

CODE = b"""def first(items, limit):
    # a limit of 0 is none
    if not items:
        return None
    best = items[0]
    for item in items:
        if item > best and item < limit:
            best = item
    return best + 1


def kept(path):
    try:
        return open(path)
    except OSError:
        print(path)
        print(path)
        return False
"""


@pytest.fixture(scope="module")
def cases():
    return make(7, 8)


def changed(case) -> dict[str, list[int]]:
    """Lines of the head that the base does not have, by path."""
    out = {}
    for path, data in case.head.items():
        old, new = case.base.get(path, b"").splitlines(), data.splitlines()
        rows = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        lines = [n + 1 for tag, _, _, a, b in rows if tag != "equal" for n in range(a, b)]
        if lines:
            out[path] = lines
    return out


def test_the_same_seed_gives_the_same_cases_and_commits(cases, tmp_path):
    again = make(7, 8)
    assert again == cases
    assert cases[0].lay(tmp_path / "a") == again[0].lay(tmp_path / "b")
    assert make(8, 8) != cases


def test_the_fault_stands_on_the_lines_that_are_named(cases):
    for case in cases:
        if case.bug:
            inside = set(range(case.bug.first, case.bug.last + 1))
            assert inside & set(changed(case)[case.bug.path]), case.name


def test_the_fault_is_the_only_change_but_renames(cases):
    by_pair = {(case.pair, case.kind, case.framing): case for case in cases}
    for case in cases:
        if case.kind is Kind.BUG and case.framing is Framing.NONE:
            clean = by_pair[case.pair, Kind.REFACTORING, Framing.NONE]
            differing = [path for path in case.head if case.head[path] != clean.head[path]]
            assert differing == [case.bug.path]


def test_renames_leave_the_program_as_it_was(cases):
    """The trees are equal once every local name is the same."""

    class Plain(ast.NodeTransformer):
        def visit_Name(self, node):
            return ast.copy_location(ast.Name(node.id.removesuffix("_value"), node.ctx), node)

    clean = [case for case in cases if case.kind is Kind.REFACTORING]
    assert clean
    for case in clean:
        assert changed(case), case.name
        for path in changed(case):
            old, new = (ast.dump(Plain().visit(ast.parse(files[path]))) for files in (case.base, case.head))
            assert old == new, case.name


def test_every_head_compiles_and_every_fault_changes_the_program(cases):
    for case in cases:
        for path in changed(case):
            if path.endswith(".py"):
                compile(case.head[path], path, "exec")
        if case.bug:
            old, new = case.base[case.bug.path], case.head[case.bug.path]
            assert ast.dump(ast.parse(old)) != ast.dump(ast.parse(new))


def test_the_framings_differ_in_words_alone(cases):
    for case in cases:
        if case.framing is Framing.INJECTED:
            assert ORDERS.encode() in case.head["AGENTS.md"]
            assert ORDERS.encode() in case.head[case.bug.path]
            assert case.bug.path not in case.base.get("AGENTS.md", b"").decode()
    plain, free = (
        {c.pair: c.head for c in cases if c.kind is Kind.BUG and c.framing is f}
        for f in (Framing.NONE, Framing.BUG_FREE)
    )
    assert plain == free


def test_every_operator_finds_its_place():
    source = Source(CODE)
    found = {(one.operator, source.data[one.start : one.end]) for one in faults(source)}
    assert found == {
        ("negated-guard", b"not items"),
        ("boundary", b">"),
        ("boundary", b"<"),
        ("and-or", b"and"),
        ("off-by-one", b"+"),
        ("wrong-constant", b"return False"),
    }
    names = {edits[0].text for edits in renames(source)}
    assert names == {b"best_value", b"item_value"}


def test_edits_that_overlap_are_refused():
    one = faults(Source(CODE))[0]
    with pytest.raises(ValueError, match="overlap"):
        apply(CODE, [one, one])


def test_a_package_that_is_not_there_is_said():
    with pytest.raises(UsageError, match="no-such-package is not installed"):
        make(1, 1, ["no-such-package"])


def package(tmp_path, monkeypatch, **files):
    """A package that is installed, in name."""
    info = tmp_path / "odd-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1\n")
    (info / "RECORD").write_text("".join(f"odd/{name}.py,,\n" for name in [*files, "gone"]))
    (tmp_path / "odd").mkdir()
    for name, data in files.items():
        (tmp_path / "odd" / f"{name}.py").write_bytes(data)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_code_that_nobody_can_read_is_passed_over(tmp_path, monkeypatch):
    package(tmp_path, monkeypatch, good=CODE, template=b"class {{ name }}:\n    pass\n", data=b"\0")
    found = make(1, 1, ["odd"])
    assert {case.bug.path for case in found if case.bug} == {"odd/good.py"}
    assert all(case.base["odd/template.py"] == case.head["odd/template.py"] for case in found)


@pytest.mark.parametrize(
    "code", [b"VERSION = 1\n", b"def f(a):\n    if not a:\n        return 1\n    print(a)\n    print(a)\n"]
)
def test_a_package_without_code_to_break_or_to_rename_is_said(code, tmp_path, monkeypatch):
    package(tmp_path, monkeypatch, thin=code)
    with pytest.raises(UsageError, match="odd has no code"):
        make(1, 1, ["odd"])
