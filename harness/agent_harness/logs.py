"""The operational log: for whoever runs the harness, on stderr. What happened to an item is the audit log's matter.

`AGENT_HARNESS_LOG` sets the level (`debug`, `info`, `warning` by default, `error`); off a terminal it is JSON lines.
"""

import logging
import os
import sys
from contextlib import suppress
from typing import Any

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _Stderr:
    """Whatever stderr is now. One that is closed or full takes no run down with it."""

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()


def logger() -> Any:
    """The harness's logger. structlog is imported here, late: no command needs it before it opens a project."""
    import structlog

    if not structlog.is_configured():
        level = LEVELS.get(os.environ.get("AGENT_HARNESS_LOG", "").lower(), logging.WARNING)
        terminal = sys.stderr is not None and sys.stderr.isatty()
        structlog.configure(
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,
                structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(level),
            logger_factory=structlog.PrintLoggerFactory(_Stderr()),  # type: ignore[arg-type]
            cache_logger_on_first_use=False,
        )
    return structlog.get_logger("agent_harness")
