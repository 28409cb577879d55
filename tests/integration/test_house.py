"""The house numbers, read off the tracked files. Complexity is ruff's, layers are import-linter's."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FUNCTION_LINES = 70
FILE_LINES = {"harness": 400, "tests": 800}
EDGE_FILE_LINES = 500
CODE_LINES = 15_250
"""Of the four source roots: lines that hold code, so no blank lines, comments or docstrings."""
POSITIONAL = 5
CLASS_DEPTH = 2
PORT_METHODS = 6
AGENTS_LINES = 110
SOURCES = ("harness", "adapters", "roles", "sandbox")
ERROR_TREE = "harness/agent_harness/errors.py"
VENDORS = {"docker", "litellm", "minisweagent", "openai"}
VENDOR_FOLDERS = ("adapters/", "sandbox/")
DATABASE = {"sqlalchemy", "alembic"}
DATABASE_FOLDERS = tuple(f"harness/agent_harness/{name}/" for name in ("store", "queue", "audit"))
CATCH_ALL_FOLDERS = tuple(f"harness/agent_harness/{name}" for name in ("cli/", "gates/", "pipeline.py"))
REGISTRY_HOSTS = re.compile(
    r"pypi\.org|pythonhosted\.org|(?:deb|security)\.debian\.org|npmjs\.(?:org|com)|archive\.ubuntu\.com|"
    r"(?:index|registry-1|hub)\.docker\.(?:io|com)|ghcr\.io|quay\.io"
)
PATCHABLE = re.compile(r"time\b|os\.environ\b|os environ\b|sys (stdin|stdout|stderr|argv)\b")  # clock and environment

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tracked() -> tuple[str, ...]:
    """Paths that git tracks here and that are there, whoever owns the folder."""
    words = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    names = subprocess.run(words, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    return tuple(name for name in names if name and (ROOT / name).is_file())


@cache
def text(name: str) -> str:
    return (ROOT / name).read_bytes().decode("utf-8", "replace")


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(text(name), name)


@cache
def nodes(name: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(name)))


def modules(*folders: str) -> list[str]:
    return [name for name in tracked() if name.endswith(".py") and name.startswith(tuple(f"{f}/" for f in folders))]


def functions(name: str) -> Iterator[Function]:
    return (node for node in nodes(name) if isinstance(node, Function))


def imports(node: ast.AST) -> list[str]:
    """Top names of the modules that an import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [(node.module or "").split(".")[0]]
    return []


def at_import_time(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs when the module is imported: function bodies and type-checking blocks do not."""
    for child in ast.iter_child_nodes(node):
        typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if not isinstance(child, Function | ast.Lambda) and not typing_only:
            yield child
            yield from at_import_time(child)


def test_the_files_are_seen():
    assert len(modules(*SOURCES)) > 20
    assert "pyproject.toml" in tracked()


def test_files_are_short():
    limits = {name: FILE_LINES.get(name.split("/")[0], EDGE_FILE_LINES) for name in tracked() if name.endswith(".py")}
    assert [name for name, limit in limits.items() if text(name).count("\n") > limit] == []


def test_functions_are_short():
    long = [
        f"{name}:{node.lineno} {node.name}"
        for name in tracked()
        if name.endswith(".py")
        for node in functions(name)
        if (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES
    ]
    assert long == []


def test_few_positional_parameters():
    many = []
    for name in modules(*SOURCES, "scripts", "tests"):
        for node in functions(name):
            names = [arg.arg for arg in [*node.args.posonlyargs, *node.args.args]]
            if len(names) - (names[:1] in (["self"], ["cls"])) > POSITIONAL and not node.name.startswith("test_"):
                many.append(f"{name}:{node.lineno} {node.name}")
    assert many == []


def test_classes_are_shallow():
    """The error tree is let off: it sorts faults for whoever catches them, and no behaviour hides in it."""
    bases: dict[str, list[str]] = {}
    for name in modules(*SOURCES):
        for node in nodes(name) if name != ERROR_TREE else ():
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]

    def depth(name: str) -> int:
        return 1 + max((depth(base) for base in bases[name] if base in bases and base != name), default=0)

    assert [name for name in bases if depth(name) > CLASS_DEPTH] == []


def test_nothing_catches_everything_but_the_three_places():
    wide = []
    for name in modules(*SOURCES):
        if name.startswith(CATCH_ALL_FOLDERS):
            continue
        for node in nodes(name):
            if isinstance(node, ast.ExceptHandler):
                caught = ast.unparse(node.type) if node.type else "BaseException"
                cleans_up = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
                if re.search(r"\b(Base)?Exception\b", caught) and not cleans_up:
                    wide.append(f"{name}:{node.lineno}")
    assert wide == []


def test_vendors_stay_at_the_edges_and_come_late():
    early, inside, database = [], [], []
    for name in modules(*SOURCES):
        used = {top for node in nodes(name) for top in imports(node)}
        if used & VENDORS and not name.startswith(VENDOR_FOLDERS):
            inside.append(name)
        if used & DATABASE and not name.startswith(DATABASE_FOLDERS):
            database.append(name)
        if VENDORS & {top for node in at_import_time(tree(name)) for top in imports(node)}:
            early.append(name)
    assert (inside, early, database) == ([], [], [])


def test_tests_patch_only_clock_and_environment():
    found = []
    for name in modules("tests"):
        for node in nodes(name):
            if "mock" in imports(node) or (isinstance(node, ast.ImportFrom) and node.module == "unittest.mock"):
                found.append(f"{name}:{node.lineno} mock")
            if isinstance(node, ast.arg) and node.arg == "mocker":
                found.append(f"{name}:{node.lineno} mocker")
            if isinstance(node, ast.Call) and re.fullmatch(r"monkeypatch\.set(attr|item)", ast.unparse(node.func)):
                target = " ".join(ast.unparse(argument).strip("'\"") for argument in node.args[:2])
                if not PATCHABLE.match(target):
                    found.append(f"{name}:{node.lineno} {target}")
    assert found == []


def code_lines(name: str) -> int:
    """Lines of a module that hold code."""
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text(name)).readline):
        if token.type not in layout:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in nodes(name):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            held.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(held)


def test_the_whole_stays_small():
    assert sum(code_lines(name) for folder in SOURCES for name in modules(folder)) <= CODE_LINES


def test_ports_are_small():
    ports = [node for node in tree("harness/agent_harness/ports.py").body if isinstance(node, ast.ClassDef)]
    sizes = {node.name: sum(isinstance(one, ast.FunctionDef) for one in node.body) for node in ports}
    assert len(sizes) > 10
    assert {name: size for name, size in sizes.items() if size > PORT_METHODS} == {}


def test_no_registry_is_named():
    assert [name for name in tracked() if REGISTRY_HOSTS.search(text(name))] == []


def test_the_lock_is_hashed_and_whole():
    for name in ("requirements.txt", "requirements-check.txt"):
        pins = re.split(r"(?m)^(?=[A-Za-z0-9])", text(name))[1:]
        assert pins
        assert [pin.split()[0] for pin in pins if "==" not in pin or "--hash=sha256:" not in pin] == []
        assert "://" not in text(name)


def test_papers_tell_what_is_there():
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), flags=re.MULTILINE))
    for name in ("README.md", "AGENTS.md", "CHANGELOG.md"):
        assert name in tracked(), f"{name} is missing"
        assert set(re.findall(r"\bmake ([a-z-]+)", re.sub(r"(?m)^[^`]*$", "", text(name)))) <= targets
    assert text("AGENTS.md").count("\n") <= AGENTS_LINES
