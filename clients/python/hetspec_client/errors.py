"""What can go wrong between a program and the server. All of it is a `HetspecError`."""

from __future__ import annotations


class HetspecError(Exception):
    """Its text is one line for a person to read. exit_code: the command's; 2 where trying again cannot help."""

    exit_code = 1


class InvalidInput(HetspecError):
    """The caller's own text or option: nothing was sent."""

    exit_code = 2


class ConnectionFailed(HetspecError):
    """No connection, or none any more: the server is down, unreachable, or silent for too long."""


class UnexpectedAnswer(HetspecError):
    """An answer that is not of this API: something else listens there."""


class BrokenStream(HetspecError):
    """A stream that ended before its end was told. What came until then is not the whole answer."""


class ApiError(HetspecError):
    """The server said no.

    status: of HTTP; 200 when an answer failed after it had begun. code, type: OpenAI's, or hetspec's where it has none.
    param: path of the field in the request, as in `messages[0].content`. retry_after_s: when to try again, if told.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type_: str | None = None,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.type, self.code, self.param = type_, code, param
        self.retry_after_s = retry_after_s


class InvalidRequest(ApiError):
    """400, 413, 415, 422: the same request will be refused again; `param` names the field."""

    exit_code = 2


class AuthenticationFailed(ApiError):
    """401, 403: no API key, or not one that may do this."""

    exit_code = 2


class NotFound(ApiError):
    """404, 405: no such model or path."""

    exit_code = 2


class TooManyRequests(ApiError):
    """429: the server has no room now."""


class ServerFailed(ApiError):
    """500 and whatever has no class of its own; also an answer that failed after it had begun (status 200)."""


class Unavailable(ServerFailed):
    """503: a unit is missing, or the server is shutting down."""


class DeadlineExceeded(ServerFailed):
    """504: the request's time was up."""


_KINDS: dict[int, type[ApiError]] = {
    400: InvalidRequest,
    401: AuthenticationFailed,
    403: AuthenticationFailed,
    404: NotFound,
    405: NotFound,
    413: InvalidRequest,
    415: InvalidRequest,
    422: InvalidRequest,
    429: TooManyRequests,
    503: Unavailable,
    504: DeadlineExceeded,
}


def error_class(status: int) -> type[ApiError]:
    return _KINDS.get(status, ServerFailed)
