"""The append-only log of all that was done: written with the state it records, provable by one root."""

from agent_harness.audit.cost import Cost, tally
from agent_harness.audit.log import AuditLog

__all__ = ["AuditLog", "Cost", "tally"]
