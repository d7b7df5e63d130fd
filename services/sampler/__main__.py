"""python -m sampler: serves walks until SIGTERM."""

from __future__ import annotations

import sys

from pydantic import ValidationError

from hetspec.rpc.server import ServerSettings, run_server
from sampler.config import SamplerSettings
from sampler.servicer import SamplerService


def main() -> int:
    try:
        settings = SamplerSettings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "HETSPEC_" + str(first["loc"][0]).upper()
        print(f"sampler: {name} = {first['input']!r}: {first['msg']}", file=sys.stderr)
        return 2
    return run_server(SamplerService(settings), ServerSettings(settings.host, settings.port))


if __name__ == "__main__":
    sys.exit(main())
