"""The queue: who works on what, so that nothing is done twice and nothing is lost."""

from agent_harness.queue.core import Queue
from agent_harness.queue.heartbeat import Heartbeat, heartbeat

__all__ = ["Heartbeat", "Queue", "heartbeat"]
