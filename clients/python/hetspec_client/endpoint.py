"""Where a server is, and how httpx is to reach it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from hetspec_client.calls import Call
from hetspec_client.errors import BrokenStream, ConnectionFailed, InvalidInput

_CONNECT_S = 10.0
_LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """timeout_s: how long the server may be silent. Raises InvalidInput."""

    url: str
    api_key: str | None
    timeout_s: float | None

    def __post_init__(self) -> None:
        try:
            url = httpx.URL(self.url)
        except (httpx.InvalidURL, UnicodeError) as error:
            raise InvalidInput(f"url = {self.url!r}: {error}") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise InvalidInput(f"url = {self.url!r}: must be http:// or https:// and a host")
        if self.api_key is not None and not (self.api_key and self.api_key.isascii() and self.api_key.isprintable()):
            raise InvalidInput("api_key: must be printable ASCII, and not empty")

    def settings(self) -> dict[str, Any]:
        """Of an httpx client, sync or async. Loopback is reached directly, whatever proxy the environment names."""
        return {
            "base_url": self.url,
            "headers": {"authorization": f"Bearer {self.api_key}"} if self.api_key else {},
            "timeout": httpx.Timeout(self.timeout_s, connect=_CONNECT_S),
            "mounts": dict.fromkeys(_LOOPBACK),
        }

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What httpx raises, as our own."""
        try:
            yield
        except httpx.ConnectError as error:
            raise ConnectionFailed(f"cannot connect to {self.url}: {error}") from error
        except httpx.ConnectTimeout as error:
            raise ConnectionFailed(f"cannot connect to {self.url}: no answer in {_CONNECT_S:g} s") from error
        except httpx.TimeoutException as error:
            raise ConnectionFailed(f"{self.url} is silent for {self.timeout_s} s") from error
        except httpx.HTTPError as error:
            raise ConnectionFailed(f"the connection to {self.url} failed: {error or type(error).__name__}") from error

    @contextmanager
    def stream_errors(self) -> Iterator[None]:
        """The same after an answer has begun."""
        try:
            with self.errors():
                yield
        except ConnectionFailed as error:
            raise BrokenStream(f"the stream broke off: {error}") from error


def request(http: httpx.Client | httpx.AsyncClient, call: Call) -> httpx.Request:
    headers = {} if call.body is None else {"content-type": "application/json"}
    return http.build_request(call.method, call.path, content=call.body, headers=headers)
