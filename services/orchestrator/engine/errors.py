"""Why a request did not end well. The API maps each to a status."""

from __future__ import annotations


class EngineError(Exception):
    """The root of the tree."""


class ContextTooLong(EngineError):
    """Prompt and output do not fit the model's context."""


class NoTokenAllowed(EngineError):
    """The request's grammar leaves no token to go on with."""


class UnitsUnavailable(EngineError):
    """A unit that the request needs is not there, or has no room."""


class DeadlineExceeded(EngineError):
    """The request's time was over before its last token."""


class RequestFailed(EngineError):
    """Units kept failing on this request: it is given up."""
