"""Log lines, for people or for machines, on standard error."""

from __future__ import annotations

import logging
import sys
from functools import cached_property


def configure(level: str, form: str, whose: str = "") -> None:
    """Write log lines of `level` and above to standard error, as text or as JSON.

    Args:
        whose: of several processes that write there, the one whose lines these are.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LogLines(form, whose))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    # Kafka's client reports each of its attempts, ten a second while no broker answers; what comes of them we say.
    logging.getLogger("kafka").setLevel("INFO" if level == "debug" else "CRITICAL")


class _LogLines(logging.Formatter):
    """structlog's lines. It is loaded for the first one: most commands write none, and it is a sixth of their start."""

    def __init__(self, form: str, whose: str) -> None:
        self._form, self._whose = form, whose

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return self._structured.format(record)

    @cached_property
    def _structured(self) -> logging.Formatter:
        import structlog

        times = structlog.processors.TimeStamper(fmt="iso", utc=True)
        before: list[structlog.typing.Processor] = [
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            times,
        ]
        if whose := self._whose:
            before.append(lambda _, __, event: {**event, "of": whose})
        renderer = (
            structlog.processors.JSONRenderer()
            if self._form == "json"
            else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
        )
        return structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=before,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                renderer,
            ],
        )
