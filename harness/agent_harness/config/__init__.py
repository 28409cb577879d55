"""Configuration: one frozen object from defaults, files, environment and flags, each value with its origin."""

from agent_harness.config.layers import find_project
from agent_harness.config.load import Loaded, check_ready, load
from agent_harness.config.shape import BudgetSettings, Config, Policy, RouteSettings, Sandbox

__all__ = [
    "BudgetSettings",
    "Config",
    "Loaded",
    "Policy",
    "RouteSettings",
    "Sandbox",
    "check_ready",
    "find_project",
    "load",
]
