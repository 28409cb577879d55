"""Runs a finding's reproducer again, in fresh sandboxes that no model ever touched: fails on head, passes on base."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from agent_harness.errors import InfrastructureError
from agent_harness.gates.checks import OUTPUT_KEPT, OpenTree, ran
from agent_harness.ports import Recorder
from agent_harness.types import Command, CommandEnd, CommandResult

MOST = 5
"""Reproducers that are run for one review."""
LONGEST_S = 120.0
MENDED = "its reproducer passes on head, too"
_LACKS = re.compile(
    rb"(?i)no module named|cannot find (module|package)|no required module provides|unresolved import"
    rb"|cannot load such file|package \S+ does not exist|no matching package"
)
"""What Python, Node, Go, Rust, Ruby, Java and Cargo say of a dependency that is not there."""
_NOT_RUN = frozenset({126, 127})
"""Exit codes that say that a program is missing, and nothing about the change."""


@dataclass(slots=True)
class Prover:
    """Says why a reproducer proves nothing; an empty text where it does prove what it is for."""

    open_tree: OpenTree
    recorder: Recorder
    screen: Callable[[str], str]
    moved: str = ""
    """Files of the change by which head may depend on what a sandbox made from the base does not have."""
    left: int = MOST

    def __call__(self, script: str, base: str, head: str) -> str:
        """Run it on head, and where it fails there, on base."""
        if refused := self.screen(script):
            return f"its reproducer was not run: {refused}"
        if self.left <= 0:
            return f"its reproducer was not run: {MOST} are run for one review"
        self.left -= 1
        try:
            on_head = self._run(script, head, "reproduce-head")
            if on_head.ok:
                return MENDED
            if self.moved and _LACKS.search(on_head.head + on_head.tail):
                return f"its reproducer misses on head what a sandbox made from the base lacks ({self.moved} changed)"
            if why := _unusable(on_head):
                return f"its reproducer {why} on head"
            if (on_base := self._run(script, base, "reproduce-base")).ok:
                once = self._run(script, head, "reproduce-again").ok  # what chance, time or load decides proves nothing
                return "its reproducer fails on head at one time and passes at another" if once else ""
            return f"its reproducer {_unusable(on_base) or f'fails (exit code {on_base.exit_code})'} on base, too"
        except InfrastructureError as fault:
            return f"its reproducer could not be run: {fault.line}"

    def _run(self, script: str, commit: str, where: str) -> CommandResult:
        with self.open_tree(commit, where) as sandbox:
            return ran(sandbox, Command(script, LONGEST_S, keep=OUTPUT_KEPT), self.recorder, where)


def _unusable(result: CommandResult) -> str:
    """Why a failure is no statement about the tree, or nothing."""
    if result.end is not CommandEnd.EXITED:
        return f"did not end by itself ({result.end})"
    return f"could not run (exit code {result.exit_code})" if result.exit_code in _NOT_RUN else ""
