"""What all bodies have in common: unknown fields are refused, and no value is turned into another."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticCustomError


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def field_error(field: str, message: str) -> PydanticCustomError:
    """An error of the whole request that names one field."""
    return PydanticCustomError("fields_disagree", "{message}", {"field": field, "message": message})
