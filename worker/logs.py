"""Log lines, for people or for machines, on standard error."""

from __future__ import annotations

import logging
import sys

import structlog


def configure(level: str, form: str, whose: str = "") -> None:
    """Write log lines of `level` and above to standard error, as text or as JSON.

    Args:
        whose: of several processes that write there, the one whose lines these are.
    """
    times = structlog.processors.TimeStamper(fmt="iso", utc=True)
    before: list[structlog.typing.Processor] = [structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name, times]
    if whose:
        before.append(lambda _, __, event: {**event, "of": whose})
    renderer = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=before,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            renderer,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    # Kafka's client reports each of its attempts, ten a second while no broker answers; what comes of them we say.
    logging.getLogger("kafka").setLevel("INFO" if level == "debug" else "CRITICAL")
