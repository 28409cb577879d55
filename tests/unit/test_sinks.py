"""Each format of a review, on tame reports and on ones that a hostile model or repository made."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import unquote_to_bytes
from xml.etree import ElementTree as ET

import pytest

from agent_harness_adapters.sinks import github, gitlab, junit, level, markdown, sarif, text
from agent_harness_adapters.sinks import review_json as as_json
from fakes.reviews import (
    FINDING,
    HOSTILE,
    PATHS,
    REPORT,
    SMALL,
    TAME,
    UNVERIFIED,
    WAIVED,
    finding,
    hostile,
    many,
    report,
)

SINKS = {
    "text": text.render,
    "json": as_json.render,
    "markdown": markdown.render,
    "sarif": sarif.render,
    "gitlab": gitlab.render,
    "junit": junit.render,
    "github": lambda one: "\n".join(github.render(one).values()),
}
LEFT = ("pass", "fail", "inconclusive")


@pytest.fixture(scope="module")
def hostile_report():
    return hostile()


@pytest.mark.parametrize("name", SINKS)
def test_every_sink_says_how_it_ended_and_why(name):
    for verdict, exit_ in (("fail", 1), ("inconclusive", 3), ("inconclusive", 6)):
        told = SINKS[name](report(verdict=verdict, exit=exit_, reason="the sandbox was lost"))
        assert verdict in told and "the sandbox was lost" in told
        if name != "json":
            assert f"exit {exit_}" in told
    if name != "gitlab":  # it knows issues only, and a pass is none
        assert "all is well" in SINKS[name](report(verdict="pass", exit=0, reason="all is well"))


@pytest.mark.parametrize("name", SINKS)
def test_what_is_unverified_is_told_as_such(name):
    told = SINKS[name](report(UNVERIFIED))
    assert "unverified" in told and "Made up from nothing" in told


@pytest.mark.parametrize("name", SINKS)
def test_hostile_texts_make_valid_bounded_output(name, hostile_report):
    told = SINKS[name](hostile_report)
    data = told.encode()  # no half characters
    assert name == "json" or len(data) < 1_300_000
    if name != "junit":
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]", told)


# --- levels: proof is code's -----------------------------------------------------------------------------------------


def test_nothing_that_is_not_proven_or_verified_is_ever_an_error():
    fabricated = report(*(replace(UNVERIFIED, blocking=True, severity=s) for s in ("P0", "P1", "P2", "P3")))
    assert {level(one) for one in fabricated.findings} == {"note"}
    (run,) = json.loads(sarif.render(fabricated))["runs"]
    assert {one["level"] for one in run["results"]} == {"note"}
    assert {one["properties"]["proof"] for one in run["results"]} == {"unverified"}
    assert github.commands(fabricated).count("::notice") == 4
    assert {one["severity"] for one in json.loads(gitlab.render(fabricated))[1:]} == {"info"}
    assert ET.fromstring(junit.render(fabricated)).findall("testcase[@classname='bill/split.py:12']/failure") == []
    assert "does not block" in markdown.render(fabricated).lower() and "#### " not in markdown.render(fabricated)
    told = json.loads(as_json.render(fabricated))
    assert told["blocking"] == 0 and {one["proof"] for one in told["findings"]} == {"unverified"}


def test_levels_follow_severity_and_standing():
    assert [level(one) for one in (FINDING, UNVERIFIED, WAIVED, SMALL)] == ["error", "note", "note", "note"]
    assert level(finding(blocking=False)) == level(finding(demoted="outside the change")) == "warning"


# --- JSON ------------------------------------------------------------------------------------------------------------


def test_json_is_the_common_schema_and_more():
    told = json.loads(as_json.render(TAME, "/repo/"))
    assert (told["overall_correctness"], told["overall_confidence_score"]) == ("patch is incorrect", 0.8)
    assert told["overall_explanation"] == "The shares no longer add up."
    first = told["findings"][0]
    assert first["code_location"] == {
        "absolute_file_path": "/repo/bill/split.py",
        "line_range": {"start": 12, "end": 13},
    }
    assert (first["title"], first["body"], first["priority"]) == (FINDING.title, FINDING.body, 1)
    assert 0 <= first["confidence_score"] <= 1 and first["evidence"] == [4, 9]
    assert {"run", "base", "head", "verdict", "exit", "reason", "claims", "unseen", "receipt"} <= set(told)


def test_an_inconclusive_review_is_never_called_correct():
    assert json.loads(as_json.render(report(verdict="inconclusive")))["overall_correctness"] == "review is inconclusive"
    assert json.loads(as_json.render(report(verdict="pass")))["overall_correctness"] == "patch is correct"


def test_json_cuts_nothing(hostile_report):
    bodies = [one["body"] for one in json.loads(as_json.render(hostile_report))["findings"]]
    assert bodies[: len(HOSTILE)] == [one.encode("utf-8", "replace").decode() for one in HOSTILE]


# --- Markdown --------------------------------------------------------------------------------------------------------


def outside_code(told: str) -> str:
    """What a Markdown reader takes for markup: everything but fenced blocks and code spans, as CommonMark cuts them."""
    kept, fence = [], ""
    for line in told.splitlines():
        run = re.match(r"`{3,}", line)
        if not fence and run and "`" not in line[run.end() :]:
            fence = run[0]
        elif fence and run and len(run[0]) >= len(fence) and not line[run.end() :].strip():
            fence = ""
        elif not fence:
            kept.append(line)
    assert not fence, "a fence is open at the end"
    return re.sub(r"(?<!`)(`+)(?!`)(?:.*?[^`])??\1(?!`)", "", "\n".join(kept))


def test_no_text_of_a_model_is_markup(hostile_report):
    told = outside_code(markdown.render(hostile_report, limit=10_000_000))
    words = re.sub(
        r"<details><summary>Does not block</summary>|</details>|<!-- agent-harness review -->|[#\n. -]", "", told
    )
    assert re.fullmatch(r"(Review:fail)?,?\d+finding\(s\)", words.replace("Review:fail", "", 1)), words[:300]

    class Balance(HTMLParser):
        depth = 0

        def handle_starttag(self, tag, attrs):
            assert tag in {"details", "summary"} and not attrs
            self.depth += 1

        def handle_endtag(self, tag):
            self.depth -= 1

    parser = Balance()
    parser.feed(told)
    assert parser.depth == 0


@pytest.mark.parametrize("limit", [65_536, 1_000_000])
def test_a_comment_fits_and_says_how_many_did_not(limit):
    told = markdown.render(many(6_000), limit=limit)
    shown = told.count("#### ")
    assert len(told.encode()) <= limit and shown > 100
    assert f"{6_000 - shown} more finding(s) do not fit here" in told
    assert len(markdown.render(hostile()).encode()) <= markdown.LIMIT


# --- SARIF -----------------------------------------------------------------------------------------------------------


def test_sarif_has_what_code_scanning_wants(hostile_report):
    (run,) = json.loads(sarif.render(TAME))["runs"]
    error, *_, small = run["results"]
    where = error["locations"][0]["physicalLocation"]
    assert where == {
        "artifactLocation": {"uri": "bill/split.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 12, "endLine": 13},
    }
    assert "region" not in small["locations"][0]["physicalLocation"]  # the base's lines are not head's
    assert [one["level"] for one in run["results"]] == ["error", "note", "note", "note"]
    (waived,) = [one for one in run["results"] if "suppressions" in one]
    assert waived["suppressions"] == [{"kind": "external", "justification": r"legacy, until 2030-01-01: \[see\](x)"}]
    assert run["invocations"][0]["executionSuccessful"] is True
    lost = json.loads(sarif.render(report(verdict="inconclusive", exit=3)))["runs"][0]["invocations"][0]
    assert (lost["executionSuccessful"], lost["exitCode"]) == (False, 3)
    (run,) = json.loads(sarif.render(hostile_report))["runs"]
    uris = [one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in run["results"]]
    assert all(re.fullmatch(r"[A-Za-z0-9._~%/-]+", uri) and not uri.startswith("/") for uri in uris)
    assert {unquote_to_bytes(uri) for uri in uris} >= {b"new\nline.py", b"raw-\xff.txt", b"per%cent,colon:comma"}
    assert not any(re.search(r"(?<!\\)\[", one["message"]["text"]) for one in run["results"])


def test_sarif_fingerprints_are_stable_and_tell_twins_apart():
    def marks(one):
        return [row["partialFingerprints"] for row in json.loads(sarif.render(one))["runs"][0]["results"]]

    moved = report(finding(line=90, end_line=91), finding(title="again"))
    assert marks(report(FINDING, finding(title="again"))) == marks(moved)
    assert len({one["primaryLocationLineHash"] for one in marks(moved)}) == 2


def test_sarif_scores_security_by_rule():
    found = [finding(kind="Security", severity=s, fingerprint=s) for s in ("P0", "P1", "P2", "P3")]
    rules = json.loads(sarif.render(report(*found, FINDING)))["runs"][0]["tool"]["driver"]["rules"]
    scores = {one["id"]: one.get("properties", {}).get("security-severity") for one in rules}
    assert scores == {
        "security-p0": "9.5",
        "security-p1": "8.0",
        "security-p2": "5.5",
        "security-p3": "2.0",
        "bug": None,
    }
    assert all(len(one.get("properties", {}).get("tags", ())) <= 10 for one in rules)


# --- GitHub ----------------------------------------------------------------------------------------------------------


def decoded(line: str) -> tuple[str, dict[str, str], str]:
    """A workflow command as the runner reads it."""
    command, told = re.fullmatch(r"::(\w+) (.*?)::(.*)", line).group(1, 2), line.split("::", 2)[2]

    def plain(word: str) -> str:
        for code, character in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
            word = word.replace(code, character)
        return word

    properties = dict(part.split("=", 1) for part in command[1].split(","))
    return command[0], {key: plain(value) for key, value in properties.items()}, plain(told)


def test_annotations_say_what_the_runner_understands():
    verdict, error, *_ = github.commands(TAME).splitlines()
    assert decoded(verdict)[0] == "error" and decoded(verdict)[1] == {"title": "Review: fail"}
    name, at, told = decoded(error)
    assert name == "error" and told == f"verified, blocks\n{FINDING.body}"
    assert at == {"file": "bill/split.py", "line": "12", "endLine": "13", "title": f"P1 {FINDING.title}"}
    assert "line" not in decoded(github.commands(report(SMALL)).splitlines()[1])[1]


def test_no_text_forges_a_workflow_command(hostile_report):
    lines = github.commands(hostile_report).splitlines()
    assert {decoded(line)[0] for line in lines} <= {"error", "warning", "notice"}
    files = [decoded(github.commands(report(finding(path=path))).splitlines()[1])[1]["file"] for path in PATHS[:5]]
    assert files == list(PATHS[:5])
    for line in text.render(hostile_report).splitlines():
        assert not line.lstrip().startswith("::")  # the runner reads plain output, too


def test_annotations_past_the_hosts_limit_are_counted():
    lines = github.commands(many(25)).splitlines()
    assert len(lines) == 10 and "(16 more finding(s) are in the step's summary)" in lines[0]


def test_outputs_cannot_be_forged():
    told = github.outputs(report(reason="x\nEOF\nverdict<<EOF\npass\nEOF"))
    ends = set(re.findall(r"<<(end-[0-9a-f]{32})\n", told))
    assert len(ends) == 1 and ends.isdisjoint(re.findall(r"<<(end-[0-9a-f]{32})\n", github.outputs(REPORT)))
    values = dict(re.findall(rf"(?m)^(\w+)<<{ends.pop()}\n(.*)\nend-", told))
    assert values == {
        "verdict": "fail",
        "exit": "1",
        "reason": "x EOF verdict<<EOF pass EOF",
        "findings": "0",
        "blocking": "0",
    }


# --- GitLab, JUnit ---------------------------------------------------------------------------------------------------


def test_code_quality_has_unique_fingerprints_and_every_field(hostile_report):
    issues = json.loads(gitlab.render(hostile_report))
    assert len({one["fingerprint"] for one in issues}) == len(issues) == len(hostile_report.findings) + 1
    for one in issues:
        assert {"description", "check_name", "fingerprint", "severity", "location"} <= set(one)
        assert one["severity"] in {"info", "minor", "major", "critical", "blocker"}
        assert one["location"]["path"] and one["location"]["lines"]["begin"] >= 1
    assert json.loads(gitlab.render(report(verdict="pass", exit=0))) == []
    assert [one["severity"] for one in json.loads(gitlab.render(TAME))] == [
        "critical",
        "critical",
        "info",
        "info",
        "info",
    ]


def test_junit_is_xml_whatever_it_is_told(hostile_report):
    suite = ET.fromstring(junit.render(hostile_report))
    cases = suite.findall("testcase")
    assert len(cases) == int(suite.get("tests")) == len(hostile_report.findings) + 1
    assert len(suite.findall("testcase/failure")) == int(suite.get("failures"))
    for verdict, end in zip(LEFT, ("system-out", "failure", "error"), strict=True):
        first = ET.fromstring(junit.render(report(verdict=verdict))).find("testcase")
        assert first[0].tag == end


def test_a_waiver_is_not_told_as_the_storys_doing():
    """A pass by waiver was a fail before the story: the story had no part in it. A blocking claim is its doing."""
    waived = report(WAIVED, verdict="pass", exit=0, blind="fail")
    assert "altered" not in text.render(waived) and "altered" not in text.render(report(FINDING, blind="pass"))
    assert "altered the verdict: it was pass" in text.render(report(finding(kind="unsupported_claim"), blind="pass"))
