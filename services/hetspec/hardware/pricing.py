"""From work to time and energy. Pure: the same work costs the same, to the nanosecond."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Protocol

from hetspec.hardware.channels import Beside
from hetspec.hardware.cost import Cost
from hetspec.hardware.cost_as import PricedModel, RealShapes
from hetspec.hardware.curves import CostCurves, Curve, curves_of
from hetspec.hardware.described import DescribedCosts
from hetspec.hardware.flash import ReadAhead
from hetspec.hardware.measured_costs import MeasuredCosts
from hetspec.hardware.platform import Role
from hetspec.hardware.profile import Described, Profile, ProfileError
from hetspec.hardware.work import DraftWork, ItemRows, VerifyWork, WalkWork, Work

NOTHING_AHEAD = ReadAhead()
NOTHING_BESIDE = Beside()


class _Costs(Protocol):
    @property
    def pre_verification(self) -> str | None: ...
    @property
    def longest_kv(self) -> int | None: ...
    def verify(self, work: VerifyWork, ahead: ReadAhead, beside: Beside) -> Cost: ...
    def draft(self, work: DraftWork, beside: Beside) -> Cost: ...
    def step(self, work: DraftWork, beside: Beside) -> Cost: ...  # a step alone, which is not the draft's first
    def walk(self, work: WalkWork, beside: Beside) -> Cost: ...
    def device_of(self, role: Role) -> str: ...
    def is_preemptible(self, device: str) -> bool: ...
    def padded_rows(self, role: Role, rows: int) -> int: ...
    def static_uw(self) -> dict[str, int]: ...
    def channel_bandwidth(self) -> dict[str, int]: ...


class Pricing:
    def __init__(self, profile: Profile, target: PricedModel, draft: PricedModel | None, real: RealShapes) -> None:
        """target, draft: as which the work is priced, see `CostAs.for_models`; a measured machine prices only the
        models that it was measured with. real: the models that run. Raises ProfileError or ValueError, one line each.
        """
        self._costs = _costs_of(profile, target, draft, real)
        self._real_layers = real.target.n_layers
        self._drafts = draft is not None

    def price(self, work: Work, ahead: ReadAhead = NOTHING_AHEAD, beside: Beside = NOTHING_BESIDE) -> Cost:
        """ahead: of a pass of the target. beside: what other devices do meanwhile.

        Raises ValueError for work that cannot have been done, and outside of what was measured.
        """
        if isinstance(work, VerifyWork):
            _check_verify(work, self._real_layers)
            return self._costs.verify(work, ahead, beside)
        if isinstance(work, DraftWork):
            self._check_draft(work)
            return self._costs.draft(work, beside)
        if min(work.rows, work.head_rows) < 0:
            raise ValueError(f"rows = {work.rows}, head_rows = {work.head_rows}, must not be negative")
        return self._costs.walk(work, beside)

    def device_of(self, role: Role) -> str:
        return self._costs.device_of(role)

    def is_preemptible(self, device: str) -> bool:
        """Whether a task of no use any more can be cut there: see Cost.cut."""
        return self._costs.is_preemptible(device)

    @property
    def pre_verification(self) -> str | None:
        """Why the drafter's device cannot check with the target, in one line; none where it can."""
        return self._costs.pre_verification

    @property
    def longest_kv(self) -> int | None:
        """Positions that a row may attend to, as far as that was measured; None where prices are told of any."""
        return self._costs.longest_kv

    def static_uw(self) -> Mapping[str, int]:
        """Static power of every device and memory, and of the flash, by name, in microwatts."""
        return self._costs.static_uw()

    def share(self, cost: Cost) -> dict[str, Fraction]:
        """Of each memory's bandwidth what a task takes on average while it runs: what `taken` is made of."""
        duration, bandwidths = cost.duration_ns, self._costs.channel_bandwidth()
        return {
            channel: Fraction(moved * 10**9, bandwidths[channel] * duration)
            for channel, moved in cost.channel_bytes.items()
            if duration
        }

    def curves(self, kv_len: int, max_rows: int, max_step_rows: int, ahead: ReadAhead = NOTHING_AHEAD) -> CostCurves:
        """For up to max_rows rows of a pass and max_step_rows of a draft step; where a device pads, up to the bucket
        that holds them."""
        verify_ns, verify_pj = self._curve(Role.VERIFIER, kv_len, max_rows, ahead)
        step_ns, step_pj = self._curve(Role.DRAFTER, kv_len, max_step_rows, ahead) if self._drafts else (None, None)
        row = self.price(WalkWork(1, 1))
        static = sum(self.static_uw().values())
        return CostCurves(kv_len, verify_ns, verify_pj, step_ns, step_pj, row.duration_ns, row.energy_pj, static)

    def check_pj(self, kv_len: int, max_rows: int) -> Curve | None:
        """Dynamic energy of a pass of the target on the drafter's device; None where that cannot."""
        if self.pre_verification is not None:
            return None
        return self._curve(Role.PRE_VERIFIER, kv_len, max_rows, NOTHING_AHEAD)[1]

    def plain(self, prompt_tokens: int, output_tokens: int, chunk_tokens: int) -> int:
        """Nanoseconds of plain decoding alone: the prompt in chunks, then a pass of one row and one head row a token.

        The last chunk gives the first token. Flash holds nothing ready when it begins.
        """
        walk_ns = self.price(WalkWork(1, 1)).duration_ns
        total = idle = 0
        for work, emits in _plain_passes(prompt_tokens, output_tokens, chunk_tokens, self._real_layers):
            cost = self.price(work, ReadAhead(idle))
            rest = walk_ns if emits else 0
            total += cost.duration_ns + rest
            idle = cost.duration_ns - cost.flash_ready_ns + rest
        return total

    def _check_draft(self, work: DraftWork) -> None:
        if work.step_rows and not self._drafts:
            raise ValueError(f"step_rows = {work.step_rows}: no draft model is priced")
        rows = sum(item.rows for item in work.items)
        if min(work.step_rows, default=1) < 1 or (work.step_rows and rows < 1):
            raise ValueError(f"step_rows = {work.step_rows} of {rows} rows, must be positive")

    def _curve(self, role: Role, kv_len: int, max_rows: int, ahead: ReadAhead) -> tuple[Curve, Curve]:
        edges = sorted({self._costs.padded_rows(role, rows) for rows in range(1, max_rows + 1)})
        points = []
        for rows in edges:
            items = (ItemRows((kv_len,) * rows),)
            if role is Role.DRAFTER:
                cost = self._costs.step(DraftWork(items, (rows,), rows), NOTHING_BESIDE)
            else:
                cost = self.price(VerifyWork(items, (rows,) * self._real_layers, role=role), ahead)
            points.append((rows, cost.duration_ns, cost.energy_pj))
        return curves_of(points)


def _costs_of(profile: Profile, target: PricedModel, draft: PricedModel | None, real: RealShapes) -> _Costs:
    if isinstance(profile, Described):
        return DescribedCosts(profile, target, draft, real)
    if profile.measured is None:
        raise ProfileError(f"{profile.name}: not measured yet, `hetspec calibrate` does it")
    if target.shape != real.target:
        raise ProfileError(f"{profile.name}: a measured machine prices what it runs, not cost_as {target.name!r}")
    return MeasuredCosts(profile.name, profile.device, profile.measured, real)


def _check_verify(work: VerifyWork, real_layers: int) -> None:
    rows = sum(item.rows for item in work.items)
    if len(work.rows_by_layer) > real_layers:
        raise ValueError(f"rows_by_layer has {len(work.rows_by_layer)} layers, the model that runs has {real_layers}")
    if not work.rows_by_layer or work.rows_by_layer[0] != rows:
        raise ValueError(f"rows_by_layer = {work.rows_by_layer}, must begin with the items' {rows} rows")
    if min(work.rows_by_layer) < 1:
        raise ValueError(f"rows_by_layer = {work.rows_by_layer}, must be positive")


def _plain_passes(prompt: int, output: int, chunk: int, layers: int) -> Iterator[tuple[VerifyWork, bool]]:
    """And whether a token follows from it."""
    if min(prompt, output, chunk) < 1:
        raise ValueError(f"prompt {prompt}, output {output} and chunk {chunk} tokens, must be positive")
    ends = [*range(chunk, prompt, chunk), *range(prompt, prompt + output)]
    for start, end in zip([0, *ends], ends, strict=False):
        kv_len = tuple(range(start + 1, end + 1))
        yield VerifyWork((ItemRows(kv_len),), (len(kv_len),) * layers), end >= prompt
