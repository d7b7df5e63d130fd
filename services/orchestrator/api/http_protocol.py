"""HTTP/1.1 over a connection: what is no HTTP at all is refused in the shape of every other error."""

from __future__ import annotations

import json

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from orchestrator.api.errors import ApiError


class JsonErrorProtocol(H11Protocol):
    def send_400_response(self, msg: str) -> None:
        body = json.dumps(ApiError(400, "this is not valid HTTP", code="invalid_http").body()).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        answer = (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage())
        for event in answer:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
