"""Workspaces: base commits in, exact trees out, candidates captured. Never the user's checkout.

The harness keeps one bare private repository (`HarnessRepository`). An item's work tree is written from it, and what
becomes of the tree is read back without running git in it: no configuration, attribute, hook or ignore file that
somebody wrote there has a say.
"""

from agent_harness.workspace.checkout import Checkout
from agent_harness.workspace.entries import Entry
from agent_harness.workspace.folders import locked
from agent_harness.workspace.repository import HarnessRepository
from agent_harness.workspace.scan import CaptureLimits
from agent_harness.workspace.spares import spread

__all__ = ["CaptureLimits", "Checkout", "Entry", "HarnessRepository", "locked", "spread"]
