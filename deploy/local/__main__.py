"""python -m deploy.local up | down | logs"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from deploy.local import example, readiness, settings
from deploy.local.access import Access
from deploy.local.launcher import Launcher
from deploy.local.process import RunFolder
from deploy.local.settings import LaunchError

ROOT = Path(__file__).parents[2]


def main(arguments: list[str]) -> int:
    verbs = {"up": up, "down": down, "logs": logs}
    if len(arguments) != 1 or arguments[0] not in verbs:
        print(__doc__, file=sys.stderr)
        return 2
    launcher = Launcher(ROOT, RunFolder(ROOT / ".run"), settings.code_digest(ROOT), readiness.ready)
    try:
        return verbs[arguments[0]](launcher)
    except LaunchError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def up(launcher: Launcher) -> int:
    services = settings.services(os.environ)
    settings.check(os.environ)
    launcher.up(services)
    access = Access.to(services[-1])
    print(f"\nhetspec listens on {access.url}\n\n{example.command(access)}\n", flush=True)
    try:
        print(example.describe(example.ask(access)))
    except OSError as error:
        raise LaunchError(f"the example request failed: {error}") from error
    return 0


def down(launcher: Launcher) -> int:
    stopped = launcher.down()
    print(f"stopped: {', '.join(stopped)}" if stopped else "nothing ran")
    return 0


def logs(launcher: Launcher) -> int:
    files = sorted(launcher.folder.path.glob("*.log"))
    if not files:
        raise LaunchError("no logs yet: `make up` starts the services")
    os.execvp("tail", ["tail", "-n", "40", "-F", *map(str, files)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
