"""The command guard over its corpora: ordinary work is never refused, disguises are seen through."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent_harness.guard import RULES, Guard, Policy

CORPORA = Path(__file__).parents[1] / "corpora"


def corpus(name):
    """Commands with the rule of their section: one per line; several lines between `%%` are one."""
    rule, block, found = "", None, []
    for line in (CORPORA / name).read_text(encoding="utf-8").splitlines():
        if line == "%%":
            found += [(rule, "\n".join(block))] if block else []
            block = []
        elif line.startswith("## ") and not block:
            rule, block = line[3:], None
        elif block is None:
            found.append((rule, line))
        else:
            block.append(line)
    return found


ORDINARY = [command for _, command in corpus("guard_ordinary.txt")]
DISGUISED = corpus("guard_disguised.txt")
GUARD = Guard()


def rules(command, guard=GUARD):
    return {refusal.rule for refusal in guard.screen(command).refused}


def programs(command):
    return [program.words for program in GUARD.screen(command).programs]


def test_the_corpora_are_as_large_as_promised():
    assert len(set(ORDINARY)) >= 320
    assert len(set(DISGUISED)) >= 70
    assert {rule for rule, _ in DISGUISED} == set(RULES)


def test_ordinary_commands_are_never_refused():
    assert {command: text for command in ORDINARY if (text := GUARD.refusal(command))} == {}


def test_ordinary_commands_are_seen_through():
    """An empty answer would also refuse nothing."""
    assert [command for command in ORDINARY if not GUARD.screen(command).programs] == []


@pytest.mark.parametrize("rule", RULES)
def test_disguises_are_found(rule):
    assert [command for name, command in DISGUISED if name == rule and rule not in rules(command)] == []


def test_a_refusal_names_the_rule_the_place_and_the_way_out():
    command = "cd /workspace && g=git; $g -C . push origin main"
    found = GUARD.screen(command)
    (refusal,) = found.refused
    assert (refusal.rule, refusal.program.words) == ("push", ("git", "push", "origin", "main"))
    assert command[slice(*refusal.program.at)] == "$g -C . push origin main"
    assert "/workspace" in refusal.way_out
    assert found.text.startswith(
        "refused, nothing of this command was run:\n- rule `push` refuses `git push origin main`"
    )


def test_a_nested_program_is_placed_at_the_command_that_holds_it():
    command = "ls; é=1 sh -c 'echo ü; git push'"
    (refusal,) = GUARD.screen(command).refused
    assert (
        command[slice(*refusal.program.at)] == "é=1 sh -c 'echo ü; git push'"
        or "sh -c" in command[slice(*refusal.program.at)]
    )


def test_a_program_in_a_here_document_is_placed_at_the_statement_that_holds_it():
    command = "ls\ncat > notes.md <<EOF; pwd\nstate: $(git push)\nEOF\n"
    (refusal,) = GUARD.screen(command).refused
    assert command[slice(*refusal.program.at)] == "cat > notes.md <<EOF"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("a | b && c; d &", "a b c d"),
        ("echo $(a `b`) <(c)", "echo a b c"),
        ("for x in 1; do if a; then b; else c; fi; done", "a b c"),
        ("env X=1 timeout 5 nice sh -c 'a; b'", "env timeout nice sh a b"),
        ("find . -exec a {} + -execdir b \\;", "find a b"),
        ("cat <<'E' | bash\na\nE", "cat bash a"),
        ('echo "$(cat <<\'E\'\n"`$(git push)\nE\n)"; a', "echo cat a"),
        ("x() { a \"$1\"; }; x 'b c'; $UNKNOWN d", "a d"),
        ("if a; then b c", "a b"),
    ],
)
def test_programs_are_found_in_order(command, expected):
    assert sorted(words[0] for words in programs(command)) == sorted(expected.split())


def test_what_nobody_can_read_is_noted_and_not_refused():
    found = GUARD.screen("curl -s http://127.0.0.1/x | sh")
    assert (found.refused, found.notes) == ((), ("opaque-pipe-to-shell",))


def test_policy_chooses_rules_and_lets_patterns_through():
    assert rules("sudo git push", Guard(Policy(("push",)))) == {"push"}
    lenient = Guard(Policy(tuple(RULES), allow=("git push /tmp/*",)))
    assert rules("git push /tmp/copy.git main", lenient) == set()
    assert rules("git push origin main; git push /tmp/a.git", lenient) == {"push"}
    assert Guard(Policy(())).refusal("git push") == ""


def test_padding_does_not_hide_anything():
    for padding in ("true;", "f() f() ", "a | b; ", "echo 'x' \\\n;", "cat <<E\nx\nE\n"):
        assert rules(padding * (20_000 // len(padding)) + "\ngit push\n") == {"push"}, padding


def test_the_parser_comes_late():
    code = "import sys, agent_harness.cli.main, agent_harness.config, agent_harness.guard; assert 'tree_sitter' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_one_guard_serves_many_threads():
    found = {}
    threads = [
        threading.Thread(target=lambda n=n: found.update({n: [rules(command) for _, command in DISGUISED[n::8]]}))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(all(each) for each in found.values()) and len(found) == 8


SCRAPS = """git push sudo x $( ) ` ' " $' { } {a,b} ( ) (( )) [[ ]] ; ;; && || | & < > << <<- <<< >( <( EOF \\ # $x ${x
${x:-y} if then fi for in do done while case esac function f() eval bash -c python3 xargs = +="""
SHELL_SCRAPS = st.sampled_from([*SCRAPS.split(), "\n", "EOF\n", "\\\n", "\0", "é", "\ud800"])


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(
        st.text(max_size=200),
        st.lists(SHELL_SCRAPS, max_size=60).map(" ".join),
        st.lists(SHELL_SCRAPS, max_size=60).map("".join),
    )
)
@example("$(" * 3000)
@example('"$(' * 3000)
@example("{a," * 3000 + "}" * 3000)
@example("cat <<E\n$(\n`\nE\n`")
@example("python3 -c '" + "(" * 5000 + "'")
@example("python3 -c 'import os; a = [a, a] + [a]; a = a; os.system(a)'")
@example("python3 -c 'import os; a = [" + "a, " * 3000 + "]; os.system(a + a)'")
def test_no_text_makes_it_raise(command):
    found = GUARD.screen(command)
    size = len(command.replace("\0", ""))
    assert all(0 <= one.at[0] <= one.at[1] <= size for one in found.programs)


@pytest.mark.parametrize(
    "bomb",
    [
        "".join(f"f{n}() {{ f{n + 1}; f{n + 1}; f{n + 1}; }}; " for n in range(14)) + "f0",
        "a=xx;" + "a=$a$a;" * 99 + "eval $a",
        "for a in 1 2 3 4 5 6 7 8; do " * 12 + "x;" + "done;" * 12,
    ],
)
def test_bombs_are_given_up_with_a_note(bomb):
    found = GUARD.screen(bomb)
    assert found.refused == () and "too much to be looked through to the end" in found.notes
