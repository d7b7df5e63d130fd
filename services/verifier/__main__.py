"""python -m verifier: serves passes of the target model until SIGTERM."""

from __future__ import annotations

import sys

from hetspec.rpc.contracts import VERIFY
from hetspec.rpc.server import ServerSettings, run_server
from hetspec.rpc.settings import read_settings
from hetspec.rpc.unit import UnitService
from hetspec.telemetry.open_traces import open_traces
from verifier.config import VerifierSettings
from verifier.unit import load


def main() -> int:
    settings = read_settings("verifier", VerifierSettings)
    service = UnitService(VERIFY, lambda: load(settings), lambda: open_traces("verifier", settings.traces))
    return run_server(service, ServerSettings.of(settings))


if __name__ == "__main__":
    sys.exit(main())
