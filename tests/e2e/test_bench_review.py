"""`bench review` with the four recorded reviewers: the scorer has to rank them, and no invention may count."""

import json
import subprocess
import sys

import pytest

from agent_harness.bench.reviewers import STYLES

pytestmark = pytest.mark.docker
SEED, PAIRS = 3, 1


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    out = {}
    for style in STYLES:
        words = ["bench", "review", "--reviewer", style, "--seed", str(SEED), "--pairs", str(PAIRS), "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "agent_harness.cli.main", *words], cwd=folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        out[style] = json.loads(done.stdout)
    return out


def test_they_rank_in_their_order(scored):
    points = [scored[style]["score"]["points"] for style in STYLES]
    assert points == sorted(points, reverse=True)
    assert len(set(points)) == len(STYLES)
    assert points[0] == 1.0


def test_careful_finds_each_fault_on_its_line_whatever_the_story_says(scored):
    found = scored["careful"]["score"]
    assert set(found["recall"].values()) == {1.0}
    assert (found["precision"], found["line_accuracy"], found["false_blocks"]) == (1.0, 1.0, 0.0)
    assert (found["claims"], found["framing_effect"]) == (1.0, 0.0)


def test_nothing_invented_is_ever_verified(scored):
    reviews = scored["fabricating"]["reviews"]
    assert len(reviews) == PAIRS * 7
    assert {one["verdict"] for one in reviews} == {"inconclusive"}
    assert [f for one in reviews for f in one["findings"]] == []


def test_who_believes_is_measured(scored):
    assert scored["gullible"]["score"]["claims"] == 0.0
    assert scored["lazy"]["score"]["claims"] == 0.0


def test_an_unknown_reviewer_is_one_clear_line(tmp_path):
    words = ["bench", "review", "--reviewer", "perfect"]
    done = subprocess.run(
        [sys.executable, "-m", "agent_harness.cli.main", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "careful, lazy, gullible, fabricating" in done.stderr
