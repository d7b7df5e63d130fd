"""python -m orchestrator.probe: what /readyz at this host's HETSPEC_PORT says. Exit code 0 when it is ready, else 1."""

from __future__ import annotations

import http.client
import os
import sys
from contextlib import closing

_TIMEOUT_S = 10.0


def main() -> int:
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["HETSPEC_PORT"]), timeout=_TIMEOUT_S)
    with closing(connection):
        try:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            print(answer.read().decode())
        except (OSError, http.client.HTTPException) as error:
            print(str(error).strip(), file=sys.stderr)
            return 1
        return 0 if answer.status == http.client.OK else 1


if __name__ == "__main__":
    sys.exit(main())
