"""The nouns of the harness: frozen, without I/O, known to every part.

Units are in the names: `_ms` are milliseconds since the epoch, `_s` are seconds, money is an integer of
nano-dollars (1 USD = 1_000_000_000), so that sums are exact. A price is always rounded up.
"""
# ruff: noqa: F403 - every public name of these files is one of the nouns, and is listed where it is defined

from agent_harness.types.base import *
from agent_harness.types.box import *
from agent_harness.types.judged import *
from agent_harness.types.talk import *
from agent_harness.types.verdict import *
from agent_harness.types.work import *
