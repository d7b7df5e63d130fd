"""Prints pyproject's pinned requirements: the base's, then those of the extras named as arguments."""

import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def requirements(extras: list[str]) -> list[str]:
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    lines: list[str] = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    return sorted(set(lines))


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
