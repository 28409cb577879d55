"""The rules: which programs of a command are refused, why, and the way out. They speak of the sandbox's own paths."""

from __future__ import annotations

import re
from collections.abc import Container
from fnmatch import fnmatchcase
from typing import NamedTuple

from agent_harness.guard.nouns import Policy

Words = list[str]


class Rule(NamedTuple):
    """A named rule over a program's words: its plain name first, a space after each, none within them."""

    name: str
    why: str
    way_out: str
    hits: tuple[str, ...]
    spares: str = r"(?!)"


_OPTIONS = r"(-\S+ ([^-\s]\S* )?)*"
_USED = "(?!--version|--help)"
_SETUID = r"(0?[4-7][0-7]{3}|(\S*,)?([go]*[ua][ugoa]*)?[+=][a-zX]*s\S*) "

RULES = {
    rule.name: rule
    for rule in (
        Rule(
            "push",
            "nothing is published from the sandbox, which has no way out",
            "Leave the change in /workspace and submit: the harness delivers it on a branch of its own",
            (
                "git (push|send-pack|http-push|send-email|subtree push|lfs push|svn dcommit|p4 submit) ",
                r"git remote (add|set-url) (.* )?((?!file:)\w[\w+.-]*://|[\w.-]+@[\w.-]+:|[\w-]+\.[\w.-]+:(?!/))",
                f"(gh|glab) {_OPTIONS}([pm]r (create|merge)|release (create|upload)|repo (create|sync)|workflow run) ",
                f"(npm|pnpm|yarn|bun) {_OPTIONS}(npm )?(publish|unpublish|dist-tag add) ",
                f"(cargo|poetry|uv|hatch|flit|pdm|twine|mvn) {_OPTIONS}(publish|yank|upload|deploy) ",
                f"(docker|podman|buildah|helm|oras|gem) {_OPTIONS}(image )?push ",
            ),
            " --(dry-run|help) ",
        ),
        Rule(
            "history-rewrite",
            "the history that work starts from stays as it is",
            "Only the files in /workspace are taken, not its commits: edit them, or add a commit with `git commit`",
            (
                "git (filter-branch|filter-repo|update-ref|reflog expire|reflog delete) ",
                "git rebase (?!--abort|--quit|--show-current-patch)",
                "git (commit (.* )?--amend |pull (.* )?--rebase)",
                r"git branch (.* )?-\w*D",
                r"git branch (?=(.* )?(-\w*d\w*|--delete) )(?=(.* )?(-\w*f\w*|--force) )",
                "bfg ",
            ),
            " --help ",
        ),
        Rule(
            "privilege",
            "the sandbox gives no rights beyond its own user's, and no other containers",
            "Work as that user, in /workspace and /tmp; if something is missing, say so in the submission",
            (
                f"(sudo|su|doas|pkexec|runuser|setpriv|capsh|setcap|umount|losetup|insmod|modprobe|rmmod) {_USED}",
                f"(nsenter|unshare|chroot|pivot_root|docker|docker-compose|podman|nerdctl|ctr|runc|crun|kexec) {_USED}",
                f"mount {_OPTIONS}[^-]",
                f"mknod {_OPTIONS}[^-]\\S* (?!p )",
                f"chmod (-\\S+ )*{_SETUID}",
                f"install (.* )?(-m ?|--mode=){_SETUID}",
            ),
        ),
    )
}
"""Every rule by its name."""


def judge(words: Words, policy: Policy) -> Rule | None:
    """The first rule of a policy that a program hits, unless the policy lets that program through."""
    whole = " ".join(words)
    if any(fnmatchcase(whole, pattern) for pattern in policy.allow):
        return None
    told = "".join("_".join(word[:80].split()) + " " for word in words[:400])
    for rule in (RULES[name] for name in policy.refuse if name in RULES):
        if re.match("|".join(rule.hits), told) and not re.search(rule.spares, told):
            return rule
    return None


_GIT_VALUED = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"})


def git_words(words: Words) -> Words:
    """`git -C x push` and `git-push` as `git push`; any other program's words as they are."""
    if words[0].startswith("git-"):
        return ["git", words[0][4:], *words[1:]]
    return ["git", *after(words, _GIT_VALUED)] if words[0] == "git" else words


def after(words: Words, valued: Container[str]) -> Words:
    """The words behind a program's own options; those in `valued` take a value."""
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        if words[at] == "--":
            return words[at + 1 :]
        at += 2 if words[at] in valued else 1
    return words[at:]
