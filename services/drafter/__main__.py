"""python -m drafter: serves drafts until SIGTERM."""

from __future__ import annotations

import sys
from functools import partial

from drafter.config import DrafterSettings
from drafter.held_target import held_target
from drafter.unit import load
from hetspec.rpc.contracts import DRAFT
from hetspec.rpc.server import ServerSettings, run_server
from hetspec.rpc.settings import read_settings
from hetspec.rpc.unit import UnitService
from hetspec.telemetry.open_traces import open_traces


def main() -> int:
    settings = read_settings("drafter", DrafterSettings)
    traces = partial(open_traces, "drafter", settings.traces)
    service = UnitService(DRAFT, partial(load, settings), traces, beside=held_target(settings))
    return run_server(service, ServerSettings.of(settings))


if __name__ == "__main__":
    sys.exit(main())
