"""A verdict counts when code can confirm what it cites. Facts, from the review gate:

`hunks`           what the change consists of; each has `name`, `path`, `removed`, `added`, and tells what it `touches`
`shown`           the numbers of those hunks that stood in the prompt
`story`           what the change says of itself; told once the first verdict stands
`read_candidate`, `read_base`   a path's bytes on either side, None where there is no such file

What cannot be located or contradicts itself goes back each time. Evidence that does not hold, and hunks nobody looked
at, go back once; after that they are told as what they are: `sound` is false, `unseen` names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from agent_harness.types import JSON
from agent_harness.types.text import clean, locate
from agent_harness_roles.evidence import Evidence, Shown, telling

_BLOCKING = {"P0", "P1"}
_FEWEST_WORDS = 3
_NAMED = 20
_LINES, _SHOWN = 5, 160
"""Of the story, in a refusal: lines, and characters of each."""
_STORY_KIND = "unsupported_claim"


def validate(submission: JSON, facts: Mapping[str, Any], evidence: Evidence) -> tuple[list[str], dict[str, Any]]:
    """Problems, or the verdict; of each finding code has set `line`, `end_line`, `inside` (the change), `wanted` (to
    block), `sound` and `seqs`. The second verdict holds the first one's findings: a story adds, and takes nothing."""
    first = evidence.accepted[0] if evidence.accepted else None
    problems: list[str] = []
    doubts: list[str] = []
    findings = [_finding(one, facts, evidence, (problems, doubts)) for one in _numbered(submission["findings"])]
    problems += _contradictions(submission["verdict"], findings, first["findings"] if first else ())
    if len(set(submission["summary"].split())) < _FEWEST_WORDS:
        problems.append("summary: say in a sentence what the change does and why it may or may not be delivered")
    if not evidence.looked:
        problems.append("no command of this run succeeded: look at the changed files before you judge")
    claims = _claims(submission, facts, evidence, (problems, doubts)) if first else []
    if first is None and submission.get("claims"):
        problems.append("claims: none were told yet; leave them out")
    admitted = submission.get("unreviewed", ())
    if strange := [name for name in admitted if name not in {hunk.name for hunk in facts["hunks"]}]:
        problems.append(f"unreviewed: {strange[0][:200]!r} is no changed hunk; name it as the list of changes does")
    unseen = _unseen(admitted, facts, evidence)
    if unseen and submission["verdict"] == "pass" and first is None:
        more = f" and {len(unseen) - _NAMED} more" if len(unseen) > _NAMED else ""
        named = f"{', '.join(unseen[:_NAMED])}{more}"
        how = "print all their lines, also those that are gone (diff -u /base/... /workspace/...)"
        doubts.append(f"these changed hunks were not looked at yet: {named}; {how}")
    if evidence.refused == 0 or problems:
        problems += doubts
    result = {**submission, "findings": findings, "claims": claims, "unseen": unseen}
    return problems, result if first is None else _joined(first, result)


def _numbered(findings: Sequence[JSON]) -> list[JSON]:
    return [{**one, "number": number} for number, one in enumerate(findings, 1)]


def _joined(first: JSON, second: JSON) -> dict[str, Any]:
    """Both verdicts as one: all findings stay, a fail stays a fail, what was not judged stays so, and what the second
    said is kept beside it."""
    verdict = "fail" if "fail" in {first["verdict"], second["verdict"]} else "pass"
    findings = [*first["findings"], *second["findings"]]
    kept = {"findings": findings, "verdict": verdict, "blind": first["verdict"], "told": second["verdict"]}
    admitted = [name for name in first["unseen"] if name in first.get("unreviewed", ())]
    unseen = list(dict.fromkeys([*second["unseen"], *admitted]))
    return {**first, **kept, "claims": second["claims"], "unseen": unseen}


def _finding(one: JSON, facts: Mapping[str, Any], evidence: Evidence, said: tuple[list[str], list[str]]) -> JSON:
    """A finding with what code says of it. What is wrong with it is added to `said`: problems, and doubts."""
    problems, doubts = said
    where = f"finding {one['number']} ({one['title']})"
    path, side = one["path"], one["side"]
    wanted = one.get("blocking", False) or one["severity"] in _BLOCKING
    found = {name: value for name, value in one.items() if name not in {"number", "blocking"}} | {"wanted": wanted}
    if evidence.accepted and one["kind"] != _STORY_KIND:
        problems.append(f"{where}: your first findings stand and are not sent again; now only kind {_STORY_KIND}")
    try:
        first, last = _place(one, facts)
    except LookupError as fault:
        problems.append(f"{where}: its quote of {path} {fault}")
        return found
    inside = any(hunk.path == path and hunk.touches(side, first, last) for hunk in facts["hunks"])
    shown, doubt = evidence.cited(one["evidence"])
    doubt = doubt or _unfounded(one, evidence)
    if doubt:
        doubts.append(f"{where}: {doubt}")
    placed = {"line": first, "end_line": last, "inside": inside, "sound": not doubt, "doubt": doubt}
    return {**found, **placed, "seqs": [one.seq for one in shown]}


def _place(one: JSON, facts: Mapping[str, Any]) -> tuple[int, int]:
    head = one["side"] == "head"
    data = facts["read_candidate" if head else "read_base"](one["path"])
    told, quote = [hunk for hunk in facts["hunks"] if hunk.path == one["path"]], clean(one["quote"]).strip()
    odd = data is None or len({hunk.head for hunk in told}) > 1
    for hunk in told if odd and quote else ():
        # no text file, or not to be read by the name it is shown under: what the diff shows of it can be quoted
        if quote in "\n".join(hunk.added if head else hunk.removed):
            first, last = hunk.new if head else hunk.base
            return first, last
    try:
        return locate(_known(data, one), one["quote"])
    except LookupError as fault:
        for hunk in told:
            if quote and quote in hunk.head.split("\n"):
                first, last = sorted(hunk.new if head else hunk.base)
                return max(1, first), last
        more = "; of a file as a whole, quote a line that the diff has above its hunks" if told else ""
        raise LookupError(f"{fault}{more}") from fault


def _known(data: bytes | None, one: JSON) -> bytes:
    if data is None:
        how = "give it relative to the repository" if one["path"].startswith("/") else "check path and side"
        raise LookupError(f"is of no file: there is no {one['path']} in {one['side']}; {how}")
    return data


def _unfounded(one: JSON, evidence: Evidence) -> str:
    """Why the events do not show what a finding says, or nothing."""
    lines = telling(clean(one["quote"])) or [one["path"]]
    name = one["path"].rpartition("/")[2]
    shown, _ = evidence.cited(one["evidence"])
    if not any(any(line in event.output for line in lines) for event in shown):
        return "none of the events it cites shows the quoted text; cite the one in which you read it"
    about = [*lines, one["path"], name, name.partition(".")[0]]
    strange = [n for n in one["evidence"] if n and (event := evidence.at(n)) and not event.holds(about)]
    if strange:
        return f"event {strange[0]} shows neither the quoted text nor its file"
    if one["kind"] == "missing" and not evidence.searched(one["evidence"], one.get("searched") or "\0"):
        return "that something is missing needs `searched`, and an event that searched for it (rg, grep, find) in vain"
    return ""


def _claims(
    submission: JSON, facts: Mapping[str, Any], evidence: Evidence, said: tuple[list[str], list[str]]
) -> list[dict[str, Any]]:
    """What became of the story's statements. One whose evidence does not hold counts as not checked."""
    problems, doubts = said
    story = _plain(facts["story"])
    claims = submission.get("claims", ())
    if not claims:
        problems.append("claims: name each statement of the story, and whether what you saw supports it")
    out: list[dict[str, Any]] = []
    for number, one in enumerate(claims, 1):
        where = f"claim {number}"
        if _plain(one["statement"]) not in story:
            told = [line.strip()[:_SHOWN] for line in facts["story"].splitlines() if line.strip()]
            problems.append(f"{where}: its statement does not stand in the story; copy words of it: {told[:_LINES]}")
        shown, doubt = evidence.cited(one.get("evidence", ()))
        if one["support"] != "not_checked":
            doubt = doubt or _unshown(one, evidence)
        if doubt:
            doubts.append(f"{where}: {doubt}")
        seqs = [event.seq for event in shown]
        out.append({**one, "seqs": seqs} | ({"support": "not_checked", "why": doubt} if doubt else {}))
    return out


def _unshown(one: JSON, evidence: Evidence) -> str:
    numbers, text = one.get("evidence", ()), clean(one.get("text", ""))
    if one.get("searched"):
        holds = evidence.searched(numbers, one["searched"])
        return "" if holds else "no event it cites searched for `searched` (rg, grep, find) in vain"
    if not numbers or not text.strip():
        return "cite the events that show it, and as `text` words of their output; or `searched`; or say not_checked"
    missing = [n for n in numbers if (event := evidence.at(n)) and text not in event.output]
    if missing:
        return f"event {missing[0]} does not show {text[:80]!r}"
    said = [n for n in numbers if evidence.own(n, text)]
    return f"event {said[0]} was told {text[:80]!r} by a command of yours, so it shows nothing" if said else ""


def _plain(text: str) -> str:
    return " ".join(clean(text).casefold().split())


def _contradictions(verdict: str, findings: Sequence[JSON], before: Sequence[JSON]) -> list[str]:
    blocking = [one["title"] for one in findings if _blocks(one)]
    if verdict == "pass" and blocking:
        return [f"verdict pass contradicts the blocking finding ({blocking[0]}): fail, or give it the severity it has"]
    if verdict == "fail" and not blocking and not any(map(_blocks, before)):
        missing = "name what must be mended, quoting the changed line that causes it, or pass"
        return [f"verdict fail without a blocking finding in the change itself: {missing}"]
    return []


def _blocks(one: JSON) -> bool:
    return bool(one["wanted"] and one.get("inside", True))


def _unseen(admitted: Sequence[str], facts: Mapping[str, Any], evidence: Evidence) -> list[str]:
    """The hunks that neither the prompt nor a command showed whole, and those the reviewer says it did not judge. Of
    a binary file the prompt shows nothing: a command has to have opened it."""
    printed: dict[tuple[str, bool], list[Shown]] = {}
    texts = [(hunk.path, clean(hunk.text)) for hunk in facts["hunks"]]
    out = []
    for number, hunk in enumerate(facts["hunks"]):
        key = hunk.path, hunk.dark
        if (hunk.dark or number not in facts["shown"]) and key not in printed:
            printed[key] = list(_of(*key, evidence))
        seen = number in facts["shown"] and not hunk.dark
        if hunk.name in admitted or not (seen or (_printed(hunk, printed[key], facts, texts) and not hunk.elsewhere)):
            out.append(hunk.name)
    return out


def _printed(hunk: Any, events: Sequence[Shown], facts: Mapping[str, Any], texts: Sequence[tuple[str, str]]) -> bool:
    """Whether outputs hold all lines of a hunk; where each of them stands elsewhere in the file, too, also those around
    it. Those too short to tell anything count by their order alone."""
    text, lines = "\n".join(event.output for event in events), (*hunk.removed, *hunk.added)
    if wanted := telling("\n".join(lines)):
        sides = facts["read_base"](hunk.path), facts["read_candidate"](hunk.path)
        held = "\n".join(clean((data or b"").decode("utf-8", "replace")) for data in sides)
        if not any(held.count(one) == 1 for one in wanted):
            wanted += telling("\n".join(row for row in clean(hunk.text).split("\n") if row[:1] == " "))
        return all(line in text for line in wanted) and not _copied(hunk, events, texts)
    rest = map(_bare, text.split("\n"))
    return bool(text) and all(_bare(line) in rest for line in lines)


def _copied(hunk: Any, events: Sequence[Shown], texts: Sequence[tuple[str, str]]) -> bool:
    """Whether all that was printed may be of copies of a hunk that the change itself holds: no output has its lines
    more often than the other hunks it may come from."""
    text = clean(hunk.text)
    rows, others = telling("\n".join(row[1:] for row in text.split("\n")[1:])), list(texts)
    others.remove((hunk.path, text))  # itself: a twin has the same text, and it does not matter which of them stays
    whole = "\n".join(text for _, text in others)
    if not all(row in whole for row in rows):
        return False
    anywhere = cache(whole.count)
    for event in events:
        near: Callable[[str], int] = anywhere
        if _names(event, hunk.path):
            near = "\n".join(one for path, one in others if path == hunk.path or _names(event, path)).count
        if all(event.output.count(row) > near(row) for row in rows):
            return False
    return True


def _bare(line: str) -> str:
    return line.lstrip("+-").strip()


def _of(path: str, opened: bool, evidence: Evidence) -> Iterator[Shown]:
    """The commands that name a file, or whose output does; where it has to be `opened`, they name it themselves."""
    for event in evidence.commands:
        if event.ok and event.output.strip() and ((path in event.output and not opened) or _names(event, path)):
            yield event


def _names(event: Shown, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return name in event.command and folder in event.command
