"""Screens commands before they run: beside the sandbox's boundary, never instead of it.

It saves an agent turns that could lead nowhere (a push without a network) and keeps what would surprise a person out of
the log. It is no boundary: whatever it misses still runs in a container without network, keys or rights.
"""

from __future__ import annotations

from agent_harness.guard.nouns import UNKNOWN, Policy, Program, Refusal, Screening
from agent_harness.guard.rules import RULES

__all__ = ["RULES", "UNKNOWN", "Guard", "Policy", "Program", "Refusal", "Screening"]


class Guard:
    """A policy over shell commands. Holds no state of its own: any number of threads may use one."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or Policy(tuple(RULES))

    def screen(self, command: str) -> Screening:
        """Every program that the command would run, and those that a rule refuses. Never raises for any text, and
        takes time in proportion to its length. What cannot be parsed is screened as far as it can be."""
        from agent_harness.guard.walk import Walk

        walk = Walk(command, self._policy)
        return Screening(tuple(walk.programs), tuple(walk.refused), tuple(walk.notes))

    def refusal(self, command: str) -> str:
        """What the model reads instead of the command's output; empty where the command may run."""
        return self.screen(command).text if self._policy.refuse else ""
