"""As which models the work is priced: `llama2-7b:int4`, `llama2-13b:int8+llama2-7b:int8`, `path/config.json:int8`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hetspec.hardware.config_shape import shape_of_config
from hetspec.hardware.datatypes import Datatype
from hetspec.hardware.shapes import SHAPES, ModelShape, shape_of
from hetspec.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class PricedModel:
    """n_layers, head_rows: of the shape, or less for a draft model cut from it. mix_weights: of the matrix through
    which a draft model reads the target's features."""

    shape: ModelShape
    datatype: Datatype
    n_layers: int
    head_rows: int
    mix_weights: int = 0

    @classmethod
    def whole(cls, shape: ModelShape, datatype: Datatype) -> PricedModel:
        return cls(shape, datatype, shape.n_layers, shape.vocab)

    @property
    def name(self) -> str:
        cut = "" if self.n_layers == self.shape.n_layers else f"[{self.n_layers}]"
        return f"{self.shape.name}{cut}:{self.datatype}"

    @property
    def layer_bytes(self) -> int:
        return self.datatype.bytes_of(self.shape.layer_weights)

    @property
    def head_weights(self) -> int:
        return self.head_rows * self.shape.hidden

    @property
    def head_bytes(self) -> int:
        return self.datatype.bytes_of(self.head_weights)

    @property
    def kv_row_bytes(self) -> int:
        """Of one position in one layer: keys and values, float16."""
        return 2 * 2 * self.shape.kv_heads * self.shape.head_dim


@dataclass(frozen=True, slots=True)
class RealShapes:
    """Of the models that run. draft: none where lookup alone drafts."""

    target: ModelShape
    draft: ModelShape | None = None
    draft_head_rows: int = 0
    draft_reads_features: bool = False

    @classmethod
    def of(cls, target: ModelConfig, draft: ModelConfig | None) -> RealShapes:
        if draft is None:
            return cls(shape_of(target))
        return cls(shape_of(target), shape_of(draft), draft.head_rows, draft.reads_features)


@dataclass(frozen=True, slots=True)
class CostAs:
    """draft: where one is named."""

    target: PricedModel
    draft: PricedModel | None = None

    @property
    def name(self) -> str:
        return "+".join(model.name for model in (self.target, self.draft) if model is not None)

    def for_models(self, real: RealShapes) -> CostAs:
        """With a draft wherever one runs. Raises ValueError where it is neither named nor follows from the target.

        A draft model that reads the target's features is made for it: as many layers of the priced target's shape, and
        the same share of its vocabulary in its head.
        """
        if real.draft is None or self.draft is not None:
            return self
        if not real.draft_reads_features:
            raise ValueError(
                f"cost_as {self.target.name!r} names no draft, and the one that runs is a model of its own: add one, "
                f"such as {self.target.name}+llama3.2-1b:{self.target.datatype}"
            )
        shape = self.target.shape
        head_rows = -(-shape.vocab * real.draft_head_rows // real.draft.vocab)
        draft = PricedModel(shape, self.target.datatype, real.draft.n_layers, head_rows, shape.hidden**2)
        return CostAs(self.target, draft)


def own_cost(real: RealShapes, datatype: Datatype) -> CostAs:
    """The models that run, as they are."""
    draft = None
    if real.draft is not None:
        mix = real.draft.hidden**2 if real.draft_reads_features else 0
        draft = PricedModel(real.draft, datatype, real.draft.n_layers, real.draft_head_rows, mix)
    return CostAs(PricedModel.whole(real.target, datatype), draft)


def parse_cost_as(text: str) -> CostAs:
    """Raises ValueError: one line naming the part that is wrong."""
    parts = text.split("+")
    if len(parts) > 2:
        raise ValueError(f"cost_as {text!r}, must be TARGET:DATATYPE or TARGET:DATATYPE+DRAFT:DATATYPE")
    models = [_parse_model(part) for part in parts]
    return CostAs(*models)


def _parse_model(text: str) -> PricedModel:
    name, _, datatype = text.strip().rpartition(":")
    if not name or datatype not in list(Datatype):
        raise ValueError(f"cost_as: {text!r}, must be MODEL:DATATYPE with a datatype of {', '.join(Datatype)}")
    return PricedModel.whole(_find_shape(name), Datatype(datatype))


def _find_shape(name: str) -> ModelShape:
    if name in SHAPES:
        return SHAPES[name]
    path = Path(name)
    if path.suffix == ".json" or path.is_dir():
        return shape_of_config(path / "config.json" if path.is_dir() else path)
    raise ValueError(f"cost_as: model {name!r}, must be a config.json or one of {', '.join(SHAPES)}")
