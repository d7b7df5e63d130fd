"""python -m sampler: serves walks until SIGTERM."""

from __future__ import annotations

import sys

from hetspec.rpc.contracts import WALK
from hetspec.rpc.server import ServerSettings, run_server
from hetspec.rpc.settings import read_settings
from hetspec.rpc.unit import UnitService
from hetspec.telemetry.open_traces import open_traces
from sampler.config import SamplerSettings
from sampler.unit import load


def main() -> int:
    settings = read_settings("sampler", SamplerSettings)
    service = UnitService(WALK, lambda: load(settings), lambda: open_traces("sampler", settings.traces))
    return run_server(service, ServerSettings.of(settings))


if __name__ == "__main__":
    sys.exit(main())
