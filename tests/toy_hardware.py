"""Hardware and models of round numbers, so that costs can be reckoned by hand."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hetspec.hardware.cost_as import PricedModel, RealShapes
from hetspec.hardware.datatypes import Datatype
from hetspec.hardware.pricing import Pricing
from hetspec.hardware.profile import Described, parse_profile
from hetspec.hardware.shapes import ModelShape
from hetspec.hardware.work import DraftWork, ItemRows, VerifyWork

REAL_LAYERS = 6
TARGET = ModelShape(name="toy", n_layers=12, hidden=1024, ffn=4096, heads=8, kv_heads=8, head_dim=128, vocab=32000)
DRAFT = ModelShape(name="toy-draft", n_layers=2, hidden=512, ffn=2048, heads=8, kv_heads=4, head_dim=64, vocab=32000)
REAL = RealShapes(
    ModelShape(name="real", n_layers=REAL_LAYERS, hidden=64, ffn=128, heads=4, kv_heads=2, head_dim=16, vocab=1000),
    ModelShape(name="real-draft", n_layers=1, hidden=64, ffn=128, heads=4, kv_heads=2, head_dim=16, vocab=1000),
    1000,
)


def _given(value: object) -> dict[str, object]:
    return {"value": value, "assumption": "round"}


def _arithmetic(rate: str, energy: str) -> dict[str, Any]:
    return {"rate": _given(rate), "energy": _given(energy)}


_PLAIN: dict[str, Any] = {
    "name": "toy",
    "about": "round numbers",
    "sources": {},
    "devices": {
        "npu": {
            "arithmetic": {"int8": _arithmetic("2 TOPS", "1 pJ/op"), "attention": _arithmetic("1 TOPS", "2 pJ/op")},
            "memory": "dram",
            "bandwidth": _given("10 GB/s"),
            "launch": _given("10 us"),
            "buckets": {"rows": [1, 4, 16], "assumption": "round"},
            "static_power": _given("100 mW"),
        },
        "cpu": {
            "arithmetic": {"int8": _arithmetic("100 GOPS", "3 pJ/op")},
            "memory": "dram",
            "bandwidth": _given("5 GB/s"),
            "launch": _given("1 us"),
            "static_power": _given("200 mW"),
        },
    },
    "memories": {
        "dram": {
            "capacity": _given("4 GB"),
            "bandwidth": _given("20 GB/s"),
            "energy": _given("32 pJ/B"),
            "static_power": _given("50 mW"),
        }
    },
    "handover": {"through": "dram", "latency": _given("2 us")},
    "placement": {"verifier": "npu", "drafter": "npu", "sampler": "cpu"},
}
_FLASH: dict[str, Any] = {
    "bandwidth": [{"request": "4 KiB", **_given("1 GB/s")}, {"request": "1 MiB", **_given("1 GB/s")}],
    "request": _given("1 MiB"),
    "queue_depth": _given(32),
    "latency": _given("50 us"),
    "energy": _given("400 pJ/B"),
    "static_power": _given("20 mW"),
    "budget": _given("0 B"),
    "buffer_layers": _given(1),
    "reads": "overlap",
    "reads_ahead": True,
}


def toy_data(flash: dict[str, Any] | None = None) -> dict[str, Any]:
    """A profile's content, to be changed at will. flash: changes to the flash's fields; none: everything in memory."""
    data = deepcopy(_PLAIN)
    if flash is not None:
        data["flash"] = {**deepcopy(_FLASH), **{name: _changed(value) for name, value in flash.items()}}
    return data


def _changed(value: object) -> object:
    return value if isinstance(value, list | bool) or value in ("overlap", "serial") else _given(value)


def toy_profile(data: dict[str, Any]) -> Described:
    profile = parse_profile(data, "toy.yaml")
    assert isinstance(profile, Described)
    return profile


def toy_pricing(
    data: dict[str, Any] | None = None, *, target: PricedModel | None = None, draft: PricedModel | None = None
) -> Pricing:
    """Int8; with the toy draft model unless another one is given."""
    target = target or PricedModel.whole(TARGET, Datatype.INT8)
    draft = draft or PricedModel.whole(DRAFT, Datatype.INT8)
    return Pricing(toy_profile(data or toy_data()), target, draft, REAL)


def verify_rows(rows: int, kv_len: int = 100, layers: int = REAL_LAYERS) -> VerifyWork:
    """Of one session, no row of which leaves early."""
    return VerifyWork((ItemRows((kv_len,) * rows),), (rows,) * layers)


def draft_rows(*step_rows: int, kv_len: int = 100, head_rows: int | None = None) -> DraftWork:
    rows = sum(step_rows)
    return DraftWork((ItemRows((kv_len,) * rows),), step_rows, rows if head_rows is None else head_rows)
