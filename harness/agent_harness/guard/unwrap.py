"""Which programs start other programs, and where in their words those stand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agent_harness.guard.foreign import python_commands
from agent_harness.guard.nouns import UNKNOWN
from agent_harness.guard.shell import Shell

OPAQUE = "opaque-pipe-to-shell"


@dataclass(frozen=True, slots=True)
class Script:
    """Text that a shell runs, with its positional parameters."""

    text: str
    positional: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """Something that cannot be looked into."""

    text: str


Inner = list[str] | Script | Note
"""What a program runs: another program's words, a script, or nobody knows."""

_WRAPPERS: dict[str, str] = {
    "sudo": "-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir 0",
    "doas": "-u -C 0",
    "timeout": "-s --signal -k --kill-after 1",
    "nice": "-n --adjustment 0",
    "ionice": "-c -n --class --classdata 0",
    "stdbuf": "-i -o -e --input --output --error 0",
    "time": "-f -o --format --output 0",
    "exec": "-a 0",
    "flock": "-w -E --timeout 1",
    **dict.fromkeys(("nohup", "setsid", "builtin", "busybox", "toybox", "coproc", "npx"), "0"),
    **dict.fromkeys(
        ("uv run", "poetry run", "pipenv run", "pdm run", "hatch run", "rye run", "bundle exec"), "-p --with 0"
    ),
    **dict.fromkeys(("npm exec", "pnpm exec", "yarn exec", "pnpm dlx", "conda run", "mise exec"), "-n -p --package 0"),
}
"""Options that take a value, and how many words stand before the program."""

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "rbash", "mksh"})
_SSH = "-b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w"
_XARGS = "-I -i -n -P -L -l -d -a -s -E --arg-file --delimiter --max-args --max-procs --replace --max-lines"


def after(words: list[str], options: str, skip: int = 0) -> list[str]:
    """The words behind a program's own options (those in `options` take a value) and `skip` more."""
    takes, at = options.split(), 1
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        if words[at] == "--":
            at += 1
            break
        at += 2 if words[at] in takes else 1
    return words[at + skip :]


def inside(words: list[str], stdin: str | None, shell: Shell) -> Iterator[Inner]:
    """What a program with these words (the first one its plain name) would run."""
    name = words[0]
    pair = " ".join(words[:2])
    if re.fullmatch(r"python[\d.]*|pypy3?", name):
        yield from _python(words, stdin, shell)
    elif name in _SHELLS:
        yield from _shell(words, stdin, shell)
    elif pair in _WRAPPERS:
        yield from _plain(pair, words[1:])
    elif name in _WRAPPERS:
        yield from _plain(name, words)
    elif name in _SPECIAL:
        yield from _SPECIAL[name](words, stdin, shell)
    elif (path := shell.path(name)) in shell.files:
        yield from _file(shell.files[path], path, tuple(words[1:]))


def _plain(name: str, words: list[str]) -> Iterator[Inner]:
    *options, skip = _WRAPPERS[name].split()
    inner = after(words, " ".join(options), int(skip))
    while inner and name in {"sudo", "doas"} and "=" in inner[0]:
        inner = inner[1:]
    if inner:
        yield inner


def _commands(found: Iterator[list[str] | str]) -> Iterator[Inner]:
    for one in found:
        if one:
            yield Script(one) if isinstance(one, str) else one


def _file(text: str, path: str, positional: tuple[str, ...]) -> Iterator[Inner]:
    first = text.split("\n", 1)[0]
    if path.endswith(".py") or (first.startswith("#!") and "python" in first):
        yield from _commands(python_commands(text))
    elif not first.startswith("#!") or re.search(r"sh\b", first):
        yield Script(text, positional)


def _shell(words: list[str], stdin: str | None, shell: Shell) -> Iterator[Inner]:
    at, script = 1, False
    while at < len(words) and words[at][:1] in {"-", "+"} and words[at] not in {"-", "--"}:
        long = words[at].startswith("--")
        script |= not long and "c" in words[at]
        takes = words[at] in {"--rcfile", "--init-file"} or (not long and words[at][-1:] in {"o", "O"})
        at += 2 if takes else 1
    rest = words[at + 1 :] if words[at : at + 1] in (["-"], ["--"]) else words[at:]
    reads = not rest or any(re.fullmatch(r"-[a-z]*s[a-z]*", word) for word in words[1:at])
    if script:
        yield Script(rest[0] if rest else "", tuple(rest[2:]))
    elif reads or rest[0] in {"/dev/stdin", "/dev/fd/0"}:
        yield from _fed(stdin, tuple(rest))
    elif (text := shell.files.get(shell.path(rest[0]))) is not None:
        yield from _fed(text, tuple(rest[1:]))


def _fed(text: str | None, positional: tuple[str, ...]) -> Iterator[Inner]:
    if text is not None:
        yield Note(OPAQUE) if text.strip() in {UNKNOWN, ""} else Script(text, positional)


def _python(words: list[str], stdin: str | None, shell: Shell) -> Iterator[Inner]:
    at = 1
    while found := re.fullmatch(r"-([^-cmWX]*)([cmWX]?)(.*)|--.+", words[at] if words[at:] else "", re.DOTALL):
        if found[0] == "-":
            break
        value = found[3] or " ".join(words[at + 1 : at + 2])
        at += 2 if found[2] and not found[3] else 1
        if found[2] == "c":
            yield from _commands(python_commands(value))
            return
        if found[2] == "m":
            yield [value, *words[at:]]
            return
    source = stdin if words[at : at + 1] in ([], ["-"], ["/dev/stdin"]) else shell.files.get(shell.path(words[at]))
    yield from _commands(python_commands(source or ""))


def _env(words: list[str], _stdin: str | None, shell: Shell) -> Iterator[Inner]:
    for at, word in enumerate(words):
        if word in {"-S", "--split-string"} or word.startswith(("-S", "--split-string=")):
            rest = [re.sub(r"^(-S|--split-string=?)", "", word), *words[at + 1 :]]
            yield Script(" ".join(rest))
            return
    inner = after(words, "-u -C --unset --chdir")
    while inner and re.match(r"\w+=", inner[0]):
        key, _, value = inner.pop(0).partition("=")
        shell.assign(key, value)
    if inner:
        yield inner


def _command(words: list[str], _stdin: str | None, _shell: Shell) -> Iterator[Inner]:
    if not re.match(r"-\w*[vV]", words[1] if words[1:] else "") and (inner := after(words, "")):
        yield inner


def _eval(words: list[str], _stdin: str | None, shell: Shell) -> Iterator[Inner]:
    yield Script(" ".join(words[1:]), shell.positional)


def _source(words: list[str], stdin: str | None, shell: Shell) -> Iterator[Inner]:
    if words[1:]:
        fed = stdin if words[1] in {"/dev/stdin", "-"} else shell.files.get(shell.path(words[1]))
        yield from _fed(fed, tuple(words[2:]))


def _trap(words: list[str], _stdin: str | None, _shell: Shell) -> Iterator[Inner]:
    if inner := after(words, ""):
        yield Script(inner[0])


def _xargs(words: list[str], stdin: str | None, _shell: Shell) -> Iterator[Inner]:
    inner = after(words, _XARGS)
    given = (stdin or "").replace(UNKNOWN, " ").split()[:200]
    holder = next((w[2:] or words[n + 1] for n, w in enumerate(words[:-1]) if w.startswith("-I")), "")
    if holder and inner:
        for one in (stdin or UNKNOWN).strip().split("\n")[:50]:
            yield [word.replace(holder, one) for word in inner]
    elif inner or given:
        yield [*(inner or ["echo"]), *given]


def _parallel(words: list[str], stdin: str | None, _shell: Shell) -> Iterator[Inner]:
    inner = after(words, "-j -P --jobs -a --arg-file --colsep -N --delay --timeout")
    marks = [n for n, word in enumerate(inner) if word.startswith(":::")]
    head, given = (inner[: marks[0]], inner[marks[0] + 1 :]) if marks else (inner, (stdin or "").strip().split("\n"))
    for one in [word for word in given if not word.startswith(":::")][:50]:
        text = " ".join(head)
        yield Script(text.replace("{}", one) if "{}" in text else f"{text} {one}")


def _find(words: list[str], _stdin: str | None, _shell: Shell) -> Iterator[Inner]:
    starts = {"-exec", "-execdir", "-ok", "-okdir"} if words[0] == "find" else {"-x", "-X", "--exec", "--exec-batch"}
    for at, word in enumerate(words):
        if word in starts:
            rest = words[at + 1 :]
            end = next((n for n, one in enumerate(rest) if one in {";", "+"}), len(rest))
            if rest[:end]:
                yield rest[:end]


def _joined(options: str, skip: int = 0) -> Callable[[list[str], str | None, Shell], Iterator[Inner]]:
    """For programs that hand the rest of their words to a shell as one text."""

    def unwrap(words: list[str], stdin: str | None, _shell: Shell) -> Iterator[Inner]:
        inner = after(words, options, skip)
        if inner:
            yield Script(" ".join(inner))
        elif skip:
            yield from _fed(stdin, ())

    return unwrap


_SPECIAL: dict[str, Callable[[list[str], str | None, Shell], Iterator[Inner]]] = {
    "env": _env,
    "command": _command,
    "eval": _eval,
    "source": _source,
    ".": _source,
    "trap": _trap,
    "xargs": _xargs,
    "parallel": _parallel,
    "find": _find,
    "fd": _find,
    "fdfind": _find,
    "watch": _joined("-n --interval"),
    "ssh": _joined(_SSH, 1),
}
