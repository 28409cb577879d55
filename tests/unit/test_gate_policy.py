"""The policy gate: what a change may touch."""

import dataclasses

import pytest

from agent_harness.config import Policy
from agent_harness.gates import Case
from agent_harness.gates.policy import PolicyGate, matches
from agent_harness.types import Allowance, Candidate, Change, Check, GateOutcome, Item, ItemState, Refusal

ITEM = Item("i", "t", "b", ItemState.CLAIMED, None, None, (), 0, None, None, (), (), 1, 0, 0, 0, "", "", 0, 0)


def change(path, *, old="100644", new="100644", size=10, binary=False):
    status = "A" if old == "000000" else "D" if new == "000000" else "M"
    return Change(path.encode("utf-8", "surrogateescape"), status, old, new, size, binary)


def judge(*changes, item=ITEM, policy=None, files=None, checks=("python3 -m pytest -q",), refusals=()):
    files = files or {}
    gate = PolicyGate(
        policy or Policy(keep=("tests/**",)),
        [Check(c) for c in checks],
        lambda tree, path: files.get((tree, path)),
        lambda text: text.replace("KEY", "[redacted]"),
    )
    return gate.judge(Case(item, "base", Candidate("base", "tree", "commit", changes, refusals)))


@pytest.mark.parametrize(
    ("glob", "path", "hit"),
    [
        ("tests/**", "tests/a/b.py", True),
        ("tests/", "tests/a.py", True),
        ("tests/**", "src/tests/a.py", False),
        ("**/conftest.py", "a/b/conftest.py", True),
        ("**/conftest.py", "conftest.py", True),
        ("*.toml", "a.toml", True),
        ("*.toml", "x/a.toml", False),
        ("a?c", "abc", True),
        ("a.c", "abc", False),
    ],
)
def test_globs(glob, path, hit):
    assert (matches(path, [glob]) is not None) is hit


def test_an_ordinary_change_passes():
    assert judge(change("src/a.py"), change("tests/test_new.py", old="000000")).outcome is GateOutcome.PASS


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (change("harness.toml"), "protected by `harness.toml`"),
        (change(".github/workflows/ci.yml", old="000000"), "protected"),
        (change("sub/harness.toml", old="000000"), "protected by `**/harness.toml`"),
        (change(".agent-harness/waivers.toml", old="000000"), "protected by `.agent-harness/**`"),
        (change("tests/test_a.py"), "kept by `tests/**` was changed"),
        (change("tests/test_a.py", new="000000"), "was deleted"),
        (change("conftest.py", old="000000"), "check configuration"),
        (change("a/conftest.py"), "check configuration"),
        (change("pytest.py", old="000000"), "check configuration"),
        (change("tests/pytest.ini", old="000000"), "check configuration"),
        (change("x-1.dist-info/entry_points.txt", old="000000"), "check configuration"),
        (change("argparse.py", old="000000"), "in place of its own"),
        (change("src/json/__init__.py", old="000000"), "in place of its own"),
        (change(".github/workflows/a\nb.yml", old="000000"), "protected"),
        (change("Harness.toml", old="000000"), "protected"),
        (change("tests/Test_a.py"), "kept by"),
        (change("big", size=2_000_000), "max_file_bytes"),
        (change("logo.png", binary=True), "binary"),
        (change("setup.cfg", new="120000"), "a link"),
        (change(".ci", old="000000", new="120000"), "protected by `.ci/**`"),
        (change(".GitHub", old="000000", new="120000"), "protected by `.github/workflows/**`"),
        (change("tests", old="120000", new="120000"), "kept by `tests/**` was changed"),
        (change("_pytest", old="000000", new="120000"), "check configuration"),
        (change("json", old="000000", new="120000"), "in place of its own"),
        (change("vendor/x", new="160000"), "submodule"),
        *(
            (change(f"src/{name}", old="000000"), "check configuration")
            for name in (
                "sitecustomize/__init__.py",
                "sitecustomize.cpython-311-x86_64-linux-gnu.so",
                "usercustomize.py",
                "__pycache__/a.cpython-311.pyc",
                "a.pyc",
                "node_modules/.bin/jest",
                "web/jest.config.js",
                ".cargo/config.toml",
                "rust-toolchain.toml",
                ".mvn/jvm.config",
            )
        ),
        *(
            (change(name, old="000000"), "in place of its own")
            for name in (
                "pluggy.py",
                "_pytest.py",
                "pytest_timeout.py",
                "src/xdist/__init__.py",
                "json.cpython-311-x86_64-linux-gnu.so",
                "_hypothesis_pytestplugin.py",
                "iniconfig/__init__.so",
            )
        ),
    ],
)
def test_what_stops_delivery(one, words):
    result = judge(one)
    assert result.outcome is GateOutcome.FAIL
    assert any(words in reason for reason in result.reasons), result.reasons


def test_refused_entries_and_totals():
    assert judge(refusals=(Refusal("out", "a link that leaves the tree"),)).reasons == (
        "out: a link that leaves the tree",
    )
    many = judge(*(change(f"f{i}") for i in range(201)))
    assert "201 files changed" in many.reasons[0]


def test_an_item_may_ask():
    asked = dataclasses.replace(ITEM, allow_paths=("tests/test_a.py",), allow=(Allowance.CHECK_CONFIG,))
    assert judge(change("tests/test_a.py"), change("conftest.py"), item=asked).outcome is GateOutcome.PASS


@pytest.mark.parametrize(
    ("name", "old", "new", "stops"),
    [
        ("pyproject.toml", b'[project]\nname="a"\n', b'[project]\nname="b"\n', False),
        ("pyproject.toml", b"", b'[tool.pytest.ini_options]\naddopts="-k nothing"\n', True),
        ("pyproject.toml", b"", b"[tool.agent-harness.review]\nenabled = false\n", True),
        ("pyproject.toml", None, b"not toml [", True),
        ("setup.cfg", b"[metadata]\nname=a\n", b"[metadata]\nname=b\n", False),
        ("setup.cfg", b"[metadata]\nname=a\n", b"[tool:pytest]\naddopts=-x\n", True),
        ("setup.cfg", b"", b"[tool:pytest] # ]\naddopts=-p forge\n", True),
        ("setup.cfg", b"", b"[options.entry_points]\npytest11 = f = f\n", True),
        ("pyproject.toml", b"", b'[project.entry-points.pytest11]\nf = "f"\n', True),
        ("src/a.py", b"", b"import _pytest.python\n", True),
        ("src/a.py", b"import _pytest\n", b"import _pytest, os\n", False),
        ("src/a.py", b"", b"def pytest_pyfunc_call(pyfuncitem): ...\n", True),
        ("src/a.py", b"", b"import pytest\n", False),
        ("tests/__init__.py", b"", b"def load_tests(loader, tests, pattern): ...\n", True),
        ("package.json", b'{"version":"1"}', b'{"version":"2"}', False),
        ("package.json", b'{"scripts":{"test":"jest"}}', b'{"scripts":{"test":"true"}}', True),
        ("package.json", b"[]", b"{}", True),
    ],
)
def test_settings_files_are_read(name, old, new, stops):
    result = judge(change(name), files={("base", name): old, ("tree", name): new})
    assert (result.outcome is GateOutcome.FAIL) is stops


def test_a_key_is_not_delivered():
    files = {("tree", "a"): b"a KEY", ("tree", "b"): b"KEY", ("base", "b"): b"KEY"}
    assert judge(change("a"), change("b"), files=files).reasons == (
        "a: it holds a key of the harness's own configuration",
    )


def test_what_shows_other_code_than_runs_is_not_delivered():
    files = {
        ("tree", "a"): "if x:\u202e }\u2066".encode(),
        ("tree", "b"): "\u202b".encode(),
        ("base", "b"): "\u202b".encode(),
    }
    judged = judge(change("a"), change("b"), files=files)
    assert judged.reasons == ("a: it holds characters that show text in another order (U+202E, U+2066)",)
    asked = dataclasses.replace(ITEM, allow_paths=("a",))
    assert judge(change("a"), item=asked, files=files).outcome is GateOutcome.PASS


def test_scripts_the_checks_run():
    assert judge(change("run_tests.sh"), checks=["./run_tests.sh fast"]).outcome is GateOutcome.FAIL
    assert judge(change("Makefile"), checks=["make test"]).outcome is GateOutcome.FAIL
    assert judge(change("Makefile")).outcome is GateOutcome.PASS
    assert judge(change("ci/rules.mk"), checks=["make test"]).outcome is GateOutcome.FAIL
    assert judge(change("test_all.sh"), checks=["bash test_all.sh;true"]).outcome is GateOutcome.FAIL
    for name in ("ruff.toml", "a/.ruff.toml", ".flake8", "eslint.config.js", ".eslintrc.json"):
        checked = judge(change(name, old="000000"), checks=["ruff check && npx eslint . && flake8"])
        assert checked.outcome is GateOutcome.FAIL
        assert judge(change(name, old="000000")).outcome is GateOutcome.PASS
    for name, check in (
        ("tools/run/tests.py", "python3 -m tools.run.tests"),
        ("tools/run/__main__.py", "python3 -m tools.run -v"),
        ("forge.py", "pytest -p forge"),
        ("sub/check.sh", "cd ./sub/ && ./check.sh"),
        ("Taskfile.yml", "task test"),
        ("sub/justfile", "just test"),
    ):
        assert judge(change(name), checks=[check]).outcome is GateOutcome.FAIL, name
        assert judge(change(name), checks=["pytest"]).outcome is GateOutcome.PASS, name
    for name in ("src/json_tools.py", "app/json/__init__.py", "src/app/pytest_like.py", "tools/json.txt"):
        assert judge(change(name, old="000000")).outcome is GateOutcome.PASS, name
    assert judge(change("t/test_a.py"), checks=["pytest t/test_a.py"]).outcome is GateOutcome.PASS
