"""python -m weight_store: serves the checkpoints until SIGTERM."""

from __future__ import annotations

import sys

from pydantic import ValidationError

from hetspec.rpc.server import ServerSettings, run_server
from weight_store.config import WeightStoreSettings
from weight_store.servicer import WeightStoreService
from weight_store.store import Store


def main() -> int:
    try:
        settings = WeightStoreSettings()
        store = Store(settings.checkpoints(), settings.cache_dir.expanduser())
    except ValidationError as error:
        first = error.errors()[0]
        name = "HETSPEC_" + str(first["loc"][0]).upper()
        print(f"weight_store: {name} = {first['input']!r}: {first['msg']}", file=sys.stderr)
        return 2
    except FileNotFoundError as error:
        print(f"weight_store: {error}", file=sys.stderr)
        return 2
    return run_server(WeightStoreService(store), ServerSettings(settings.host, settings.port))


if __name__ == "__main__":
    sys.exit(main())
