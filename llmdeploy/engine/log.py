"""The engine's log: one JSON object a line on stderr, never prompt text."""

import json
import logging
from typing import Any

_LOGGER = "llmdeploy.engine"


class JsonLines(logging.Formatter):
    """A record as one JSON object: time, level, event and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        shown: dict[str, Any] = {
            "at_s": round(record.created, 3),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            shown["traceback"] = self.formatException(record.exc_info)
        return json.dumps(shown)


def open_log(level: str) -> None:
    """Sends this program's and uvicorn's records to stderr from now on."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for name, threshold in ((_LOGGER, level.upper()), ("uvicorn", "CRITICAL")):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(threshold)
        logger.propagate = False


def failed(event: str, **fields: object) -> None:
    """Logs an event with the traceback of the exception that is being handled."""
    logging.getLogger(_LOGGER).error(event, exc_info=True, extra={"fields": fields})


def write(event: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Logs an event with its fields."""
    logging.getLogger(_LOGGER).log(level, event, extra={"fields": fields})
