"""What the engine knows of the served model once its units are there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelBounds:
    """The bounds every session keeps. prompt_chunk_tokens leaves room in a pass for a tree beside the last chunk."""

    max_context: int
    max_rows: int
    hidden_size: int
    vocab_size: int
    end_ids: tuple[int, ...]
    prompt_chunk_tokens: int

    @property
    def row_bytes(self) -> int:
        """Of a hidden row, float32."""
        return 4 * self.hidden_size


@dataclass(frozen=True, slots=True)
class EngineDescription:
    """digests: of the required units, by name. Output is a function of these, the request and its seed alone.
    measured: the hardware whose prices end at max_context, where the model's context goes on.
    """

    model: str
    fingerprint: str
    precision: str
    max_context: int
    vocab_size: int
    digests: dict[str, str]
    measured: str | None = None

    @property
    def context(self) -> str:
        """In words."""
        end = f", where the measurements of hardware {self.measured!r} end" if self.measured else ""
        return f"the context of {self.max_context}{end}"
