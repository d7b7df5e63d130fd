"""python -m weight_store: serves the checkpoints until SIGTERM."""

from __future__ import annotations

import sys

from hetspec.model.checkpoint import CheckpointError
from hetspec.rpc.server import ServerSettings, run_server
from hetspec.rpc.settings import read_settings
from weight_store.config import WeightStoreSettings
from weight_store.servicer import WeightStoreService
from weight_store.store import Store


def main() -> int:
    settings = read_settings("weight_store", WeightStoreSettings)
    try:
        store = Store(
            settings.checkpoints(),
            settings.cache_dir.expanduser(),
            settings.early_exit_folder(),
            settings.acceptance_folder(),
        )
    except (FileNotFoundError, CheckpointError) as error:
        print(f"weight_store: {error}", file=sys.stderr)
        return 2
    return run_server(WeightStoreService(store), ServerSettings.of(settings))


if __name__ == "__main__":
    sys.exit(main())
