"""python -m orchestrator.probe: what /readyz at this host's HETSPEC_PORT says. Exit code 0 when it is ready, else 1."""

from __future__ import annotations

import http.client
import os
import ssl
import sys
from contextlib import closing

_TIMEOUT_S = 10.0


def main() -> int:
    with closing(_connection()) as connection:
        try:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            print(answer.read().decode())
        except (OSError, http.client.HTTPException) as error:
            print(str(error).strip(), file=sys.stderr)
            return 1
        return 0 if answer.status == http.client.OK else 1


def _connection() -> http.client.HTTPConnection:
    port = int(os.environ["HETSPEC_PORT"])
    if "HETSPEC_TLS_CERT" not in os.environ:
        return http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    context = ssl._create_unverified_context()  # its certificate is for the name that clients use, not for this address
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=_TIMEOUT_S, context=context)


if __name__ == "__main__":
    sys.exit(main())
