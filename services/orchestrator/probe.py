"""python -m orchestrator.probe: what /readyz at this host's HETSPEC_PORT says. Exit code 0 when it is ready, else 1."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request

_TIMEOUT_S = 4.0


def main() -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{os.environ['HETSPEC_PORT']}/readyz", timeout=_TIMEOUT_S) as answer:
            print(answer.read().decode())
    except urllib.error.HTTPError as error:
        print(error.read().decode(), file=sys.stderr)
        return 1
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
