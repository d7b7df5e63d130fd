"""The weight store's settings, read once from HETSPEC_* variables."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from hetspec.model.checkpoint.embedded import embedded_model
from hetspec.rpc.settings import Port, ServiceSettings
from weight_store import shipped


class WeightStoreSettings(ServiceSettings):
    """target: a GGUF file or a Hugging Face directory; without one, the installed small model. draft: a draft folder
    made for the target, or what a target may be; without one, what is shipped for the installed model; none.
    early_exit: likewise, of predictors made for the target. acceptance: an acceptance head that was made for target and
    draft; without one, what is shipped for the draft that is; none."""

    port: Port = 7001
    target: Path | None = None
    draft: Literal["none"] | Path | None = None
    early_exit: Literal["none"] | Path | None = None
    acceptance: Literal["none"] | Path | None = None
    cache_dir: Path = Path("~/.cache/hetspec")

    def checkpoints(self) -> dict[str, Path]:
        """Path by role. Raises FileNotFoundError when no target is named and none is installed, CheckpointError when
        what is shipped is damaged."""
        paths = {"target": self.target or embedded_model()}
        if isinstance(self.draft, Path):
            paths["draft"] = self.draft
        elif self.draft is None and self.target is None:
            paths["draft"] = shipped.checked(shipped.DRAFT)
        return {role: path.expanduser() for role, path in paths.items()}

    def early_exit_folder(self) -> Path | None:
        """Raises CheckpointError when what is shipped is damaged."""
        if isinstance(self.early_exit, Path):
            return self.early_exit.expanduser()
        if self.early_exit is None and self.target is None and shipped.EARLY_EXIT.is_dir():
            return shipped.checked(shipped.EARLY_EXIT)
        return None

    def acceptance_folder(self) -> Path | None:
        """Raises CheckpointError when what is shipped is damaged."""
        if isinstance(self.acceptance, Path):
            return self.acceptance.expanduser()
        if self.acceptance is self.draft is self.target is None:
            return shipped.checked(shipped.ACCEPTANCE)
        return None
