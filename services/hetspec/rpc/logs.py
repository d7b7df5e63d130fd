"""One line of JSON an event, on standard error."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_around: ContextVar[dict[str, object] | None] = ContextVar("hetspec_log_fields", default=None)


class JsonLines(logging.Formatter):
    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "service": self._service,
            "event": record.getMessage(),
        }
        line |= (_around.get() or {}) | getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def set_up_logging(service: str, level: str = "INFO") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(service))
    logging.basicConfig(level=level, handlers=[handler], force=True)


@contextmanager
def log_fields(**fields: object) -> Iterator[None]:
    """Every event of the block tells them too, so that it names the request that it befell."""
    token = _around.set((_around.get() or {}) | fields)
    try:
        yield
    finally:
        _around.reset(token)


def log_event(event: str, /, level: int = logging.INFO, **fields: object) -> None:
    logging.getLogger("hetspec").log(level, event, extra={"fields": fields})
