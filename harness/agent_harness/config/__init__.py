"""Configuration: one frozen object from defaults, files, environment and flags, each value with its origin."""

from agent_harness.config.layers import find_project
from agent_harness.config.load import Loaded, check_ready, load
from agent_harness.config.shape import (
    BudgetSettings,
    Ceilings,
    Config,
    Policy,
    PriceSettings,
    Project,
    QueueSettings,
    ReviewSettings,
    RoleSettings,
    RouteSettings,
    Sandbox,
    ServiceSettings,
    State,
)

__all__ = [
    "BudgetSettings",
    "Ceilings",
    "Config",
    "Loaded",
    "Policy",
    "PriceSettings",
    "Project",
    "QueueSettings",
    "ReviewSettings",
    "RoleSettings",
    "RouteSettings",
    "Sandbox",
    "ServiceSettings",
    "State",
    "check_ready",
    "find_project",
    "load",
]
