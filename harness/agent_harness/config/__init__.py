"""Configuration: one frozen object from defaults, files, environment and flags, each value with its origin."""

from agent_harness.config.layers import find_project as find_project
from agent_harness.config.load import Loaded as Loaded
from agent_harness.config.load import check_ready as check_ready
from agent_harness.config.load import load as load
from agent_harness.config.shape import BudgetSettings as BudgetSettings
from agent_harness.config.shape import Config as Config
from agent_harness.config.shape import Policy as Policy
from agent_harness.config.shape import RouteSettings as RouteSettings
from agent_harness.config.shape import Sandbox as Sandbox
