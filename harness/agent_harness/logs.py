"""The operational log: for whoever runs the harness, on stderr. What happened to an item is the audit log's matter.

`AGENT_HARNESS_LOG` sets the level (`debug`, `info`, `warning` by default, `error`); off a terminal it is JSON lines.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def logger() -> Any:
    """The harness's logger. structlog is imported here, late: no command needs it before it opens a project."""
    import structlog

    if not structlog.is_configured():
        level = LEVELS.get(os.environ.get("AGENT_HARNESS_LOG", "").lower(), logging.WARNING)
        terminal = sys.stderr.isatty()
        structlog.configure(
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,
                structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(level),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
            cache_logger_on_first_use=False,
        )
    return structlog.get_logger("agent_harness")
