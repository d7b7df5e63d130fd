"""python -m sampler: serves walks until SIGTERM."""

from __future__ import annotations

import sys

from hetspec.rpc.contracts import WALK
from hetspec.rpc.server import ServerSettings, run_server
from hetspec.rpc.settings import read_settings
from hetspec.rpc.unit import UnitService
from sampler.config import SamplerSettings
from sampler.unit import load


def main() -> int:
    settings = read_settings("sampler", SamplerSettings)
    return run_server(UnitService(WALK, lambda: load(settings)), ServerSettings(settings.host, settings.port))


if __name__ == "__main__":
    sys.exit(main())
