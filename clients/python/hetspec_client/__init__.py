"""A hetspec server from Python: `Client`, or `AsyncClient` for asyncio; what goes wrong is a `HetspecError`."""

from hetspec_client.answers import Answer, Choice, Model, Readiness, Statistics, Usage
from hetspec_client.async_client import AsyncClient, AsyncStream
from hetspec_client.client import Client, Stream
from hetspec_client.errors import (
    ApiError,
    AuthenticationFailed,
    BrokenStream,
    ConnectionFailed,
    DeadlineExceeded,
    HetspecError,
    InvalidInput,
    InvalidRequest,
    NotFound,
    ServerFailed,
    TooManyRequests,
    Unavailable,
    UnexpectedAnswer,
)
from hetspec_client.stream import Chunk

__all__ = [
    "Answer",
    "ApiError",
    "AsyncClient",
    "AsyncStream",
    "AuthenticationFailed",
    "BrokenStream",
    "Choice",
    "Chunk",
    "Client",
    "ConnectionFailed",
    "DeadlineExceeded",
    "HetspecError",
    "InvalidInput",
    "InvalidRequest",
    "Model",
    "NotFound",
    "Readiness",
    "ServerFailed",
    "Statistics",
    "Stream",
    "TooManyRequests",
    "Unavailable",
    "UnexpectedAnswer",
    "Usage",
]
