"""The rules: which programs of a command are refused, why, and the way out. They speak of the sandbox's own paths."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Words = list[str]


@dataclass(frozen=True, slots=True)
class Rule:
    """A named rule over a program's words (the first one its plain name)."""

    name: str
    why: str
    way_out: str
    hits: Callable[[Words], bool]


_GIT_VALUES = "-C -c --git-dir --work-tree --namespace --exec-path --super-prefix --config-env --attr-source"


def git_words(words: Words) -> tuple[Words, dict[str, str]]:
    """`git -C x -c alias.y=z push` as `git push`, and the aliases it set on the way."""
    if words[0].startswith("git-"):
        return ["git", words[0][4:], *words[1:]], {}
    at, aliases = 1, {}
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "-c" and words[at + 1 : at + 2]:
            key, _, value = words[at + 1].partition("=")
            if key.lower().startswith("alias."):
                aliases[key[6:]] = value
        at += 2 if words[at] in _GIT_VALUES.split() else 1
    return ["git", *words[at:]], aliases


def _plain(words: Words) -> Words:
    return [word for word in words[1:] if not word.startswith("-")]


def _options(words: Words) -> Iterator[str]:
    """Options, bundled short ones one by one, long ones without their value."""
    for word in words:
        if word == "--":
            return
        if word.startswith("--"):
            yield word.partition("=")[0]
        elif word.startswith("-"):
            yield from (f"-{letter}" for letter in word[1:])


def _has(words: Words, *options: str) -> bool:
    return not set(options).isdisjoint(_options(words))


_REMOTE = re.compile(r"(?!file:)\w[\w+.-]*://|[\w.-]+@[\w.-]+:|[\w-]+\.[\w.-]+:(?!/)")


def _git_push(words: Words) -> bool:
    sub, rest = (words[1] if words[1:] else ""), words[2:]
    if _has(rest, "--help"):
        return False
    if sub == "remote":
        return rest[:1] in (["add"], ["set-url"]) and any(_REMOTE.match(word) for word in rest)
    first = _plain(words[1:])[:1]
    return sub in {"push", "send-pack", "http-push", "send-email"} or (
        (sub, *first) in {("subtree", "push"), ("svn", "dcommit"), ("lfs", "push"), ("p4", "submit")}
    )


_PUBLISH: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("npm", "pnpm", "yarn", "bun"), ("publish", "npm publish", "unpublish", "deprecate", "dist-tag add")
    ),
    **dict.fromkeys(("poetry", "uv", "hatch", "flit", "pdm", "lerna", "vsce", "ovsx"), ("publish",)),
    "cargo": ("publish", "yank"),
    "twine": ("upload",),
    "gem": ("push", "yank"),
    "gh": ("pr create", "pr merge", "release create", "release upload", "repo create", "repo sync", "workflow run"),
    "glab": ("mr create", "mr merge", "release create", "repo create"),
    "hub": ("push", "pull-request", "create", "release create"),
    **dict.fromkeys(("docker", "podman", "buildah", "nerdctl", "helm", "crane", "oras"), ("push", "image push")),
    "skopeo": ("copy", "sync"),
    "mvn": ("deploy",),
    "dotnet": ("nuget push",),
    "semantic-release": ("",),
}


def _push(words: Words) -> bool:
    if words[0] == "git":
        return _git_push(words)
    if words[0] not in _PUBLISH or _has(words, "--dry-run", "--help"):
        return False
    told = " ".join(_plain(words)) + " "
    within = f" {told}"[:60] if words[0] in {"gh", "glab", "mvn"} else ""  # an option's value may stand before the verb
    return any(told.startswith(f"{verb} ".lstrip()) or f" {verb} " in within for verb in _PUBLISH[words[0]])


def _rewrite(words: Words) -> bool:
    if words[0] in {"git-filter-repo", "bfg"}:
        return True
    if words[0] != "git" or not words[1:]:
        return False
    sub, rest = words[1], words[2:]
    if _has(rest, "--help"):
        return False
    if sub == "branch":
        return _has(rest, "-D") or (_has(rest, "-d", "--delete") and _has(rest, "-f", "--force"))
    if sub == "commit":
        return "--amend" in rest[: rest.index("--") if "--" in rest else None]
    if sub == "reflog":
        return rest[:1] in (["expire"], ["delete"])
    if sub == "rebase":
        return not _has(rest, "--abort", "--quit", "--show-current-patch")
    return sub in {"filter-branch", "filter-repo", "update-ref"} or (sub == "pull" and _has(rest, "--rebase"))


_PRIVILEGED = frozenset(
    re.findall(
        r"\S+",
        "sudo su doas pkexec runuser umount nsenter unshare chroot pivot_root insmod modprobe rmmod kexec setcap "
        "setpriv capsh losetup docker docker-compose podman nerdctl ctr runc crun",
    )
)
_SETUID = re.compile(r"0?[4-7][0-7]{3}|(?:[^,]*,)*[ua]*[ugoa]*[+=][rwxXt]*s[rwxXst]*(?:,.*)?")


def _privilege(words: Words) -> bool:
    name, plain = words[0], _plain(words)
    if name == "mount":
        return bool(plain)
    if name == "mknod":
        return plain[1:2] != ["p"]
    if name == "chmod":
        return any(_SETUID.fullmatch(word) and not re.match(r"[go]+[+=]", word) for word in plain[:1])
    if name == "install":
        return any(_SETUID.fullmatch(re.sub(r"^(-m|--mode=)", "", word)) for word in words[1:])
    return name in _PRIVILEGED and not _has(words[1:2], "--version", "--help")


RULES = {
    rule.name: rule
    for rule in (
        Rule(
            "push",
            "nothing is published from the sandbox, which has no way out",
            "Leave the change in /workspace and submit: the harness delivers it on a branch of its own",
            _push,
        ),
        Rule(
            "history-rewrite",
            "the history that work starts from stays as it is",
            "Only the files in /workspace are taken, not its commits: edit them, or add a commit with `git commit`",
            _rewrite,
        ),
        Rule(
            "privilege",
            "the sandbox gives no rights beyond its own user's, and no other containers",
            "Work as that user, in /workspace and /tmp; if something is missing, say so in the submission",
            _privilege,
        ),
    )
}
"""Every rule by its name."""


def judge(words: Words, names: tuple[str, ...]) -> Rule | None:
    """The first of the named rules that a program hits."""
    return next((RULES[name] for name in names if name in RULES and RULES[name].hits(words)), None)
