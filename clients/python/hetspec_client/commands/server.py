"""Where the server is: options that every verb has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from typer import Option

from hetspec_client.client import DEFAULT_URL, SILENCE_S, Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    url: Annotated[str, Option(envvar="HETSPEC_URL", help="The server.")] = DEFAULT_URL
    api_key: Annotated[
        str | None, Option(envvar="HETSPEC_API_KEY", help="Sent as a bearer token.", show_default=False)
    ] = None

    def connect(self, request_timeout_s: float | None = None) -> Client:
        """request_timeout_s: the server may be silent for so much longer."""
        return Client(self.url, self.api_key, SILENCE_S + (request_timeout_s or 0.0))
