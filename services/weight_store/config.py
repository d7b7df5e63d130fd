"""The weight store's settings, read once from HETSPEC_* variables."""

from __future__ import annotations

from pathlib import Path

from hetspec.model.checkpoint.embedded import embedded_model
from hetspec.rpc.settings import Port, ServiceSettings


class WeightStoreSettings(ServiceSettings):
    """target: a GGUF file or a Hugging Face directory; without one, the installed small model. draft: a draft folder
    made for the target, or what a target may be."""

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
