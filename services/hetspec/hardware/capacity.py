"""Whether the models fit where a profile places them, and whether its devices can multiply their weights."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from hetspec.hardware.cost_as import PricedModel
from hetspec.hardware.flash import buffer_bytes
from hetspec.hardware.platform import Role
from hetspec.hardware.profile import Described, ProfileError


def check_fit(profile: Described, target: PricedModel, draft: PricedModel | None, resident: int) -> None:
    """resident: layers of the target that stay in memory. Raises ProfileError naming what does not fit where.

    Keys and values are not counted: they are the sessions'.
    """
    loads = [
        (Role.VERIFIER, target, _verifier_bytes(profile, target, resident)),
        (Role.SAMPLER, target, target.head_bytes),
    ]
    if draft is not None:
        loads.append((Role.DRAFTER, draft, _drafter_bytes(draft)))
    used: Counter[str] = Counter()
    for role, model, size in loads:
        name = profile.placement.device_of(role)
        device = profile.devices[name]
        if device.operand_of(model.datatype) is None:
            raise ProfileError(f"{profile.name}: {name}, the {role}, has no arithmetic for {model.datatype} weights")
        used[device.memory] += size
        total, capacity = used[device.memory], profile.memories[device.memory].capacity.base
        if total > capacity:
            raise ProfileError(
                f"{profile.name}: the {role}'s {model.name} brings {device.memory} to {total / 1e9:.2f} GB, "
                f"it holds {capacity / 1e9:.2f} GB"
            )


def why_not_pre_verify(profile: Described, target: PricedModel, draft: PricedModel | None, resident: int) -> str | None:
    """Why the drafter's device cannot compute the target's layers, too; none where it can."""
    name = profile.placement.drafter
    device = profile.devices[name]
    if resident < target.n_layers:
        return f"{profile.name}: no pre-verification: {target.name} lives in flash"
    if device.operand_of(target.datatype) is None:
        return f"{profile.name}: no pre-verification: {name} has no arithmetic for {target.datatype} weights"
    if device.memory == profile.devices[profile.placement.verifier].memory:
        return None  # the verifier's copy
    total = target.n_layers * target.layer_bytes + (_drafter_bytes(draft) if draft else 0)
    capacity = profile.memories[device.memory].capacity.base
    if total <= capacity:
        return None
    return (
        f"{profile.name}: no pre-verification: {target.name} brings {device.memory} to {total / 1e9:.2f} GB, "
        f"it holds {capacity / 1e9:.2f} GB"
    )


def left_for_target(profile: Described, target: PricedModel, draft: PricedModel | None) -> Fraction:
    """What of the target fits into the memory of the drafter's device, beside the draft model."""
    memory = profile.memories[profile.devices[profile.placement.drafter].memory]
    left = memory.capacity.base - (_drafter_bytes(draft) if draft else 0)
    return min(Fraction(1), Fraction(max(0, left), target.n_layers * target.layer_bytes))


def _verifier_bytes(profile: Described, target: PricedModel, resident: int) -> int:
    """Of a target in flash the embedding stays there: a row is read for a token."""
    layers = resident * target.layer_bytes
    if profile.flash is None:
        embedding = 0 if target.shape.tied else target.datatype.bytes_of(target.shape.head_weights)
        return layers + embedding
    return layers + buffer_bytes(profile.flash.buffer_layers.base, target.layer_bytes, target.n_layers - resident)


def _drafter_bytes(draft: PricedModel) -> int:
    shares_head = draft.shape.tied and draft.head_rows == draft.shape.vocab
    embedding = 0 if shares_head else draft.datatype.bytes_of(draft.shape.head_weights)
    mix = draft.datatype.bytes_of(draft.mix_weights)
    return draft.n_layers * draft.layer_bytes + draft.head_bytes + embedding + mix
