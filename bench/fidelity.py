"""Whether a machine is what its calibration says: tasks of shapes that were not measured, and whole requests."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.system import System, running
from calibration.calibration import Calibration
from calibration.draft_probe import DraftShape
from calibration.layer_reads import layer_reads_ns
from calibration.plan import Chunk, Plan, Round, Tree
from calibration.profile_file import write_profile
from calibration.rig import Addresses, open_rig, real_shapes
from calibration.sample import Sample
from hetspec.hardware.cost_as import own_cost
from hetspec.hardware.datatypes import Datatype
from hetspec.hardware.pricing import Pricing
from hetspec.hardware.profile import MeasuredHost
from hetspec.hardware.work import DraftWork, VerifyWork
from hetspec_client.client import Client

CONTEXT = 1024
REPEATS = 3
TREE_ROWS = (1, 3, 6, 11, 20, 29, 40, 58, 65)  # of which a round's last token is one
CHUNK_ROWS = (64, 100, 192, 384, 512)
DRAFTS = (DraftShape(3), DraftShape(2, 1, 5), DraftShape(2, 3, 4), DraftShape(3, 6, 2))
HEADS = ((1, True), (3, True), (5, False), (24, False))
REQUESTS, TOKENS = 10, 64
MODES: Sequence[dict[str, Any]] = ({"mode": "plain"}, {"mode": "chain", "max_depth": 5}, {"mode": "tree"})
_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class Row:
    """predicted, measured: milliseconds, medians of all of the kind. error: the median of relative ones."""

    kind: str
    tasks: int
    predicted_ms: float
    measured_ms: float
    error: float


def measure(ids: Sequence[int], report: Any = print) -> list[Row]:
    """ids: of a text that requests are made of."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "host.yaml"
        with running({}) as system:
            profile = _calibrate(system)
            write_profile(path, profile)
            report("fidelity: calibrated")
            rows = _tasks(system, profile)
            report("fidelity: tasks")
            measured_ms = _requests(system, ids)
        with running({"HETSPEC_CLOCK": "emulated", "HETSPEC_HARDWARE": str(path)}) as system:
            predicted_ms = _requests(system, ids)
    report("fidelity: requests")
    return [*rows, _row("request, end to end", list(zip(predicted_ms, measured_ms, strict=True)))]


def _addresses(system: System) -> Addresses:
    names = ("HETSPEC_WEIGHT_STORE", "HETSPEC_VERIFIER", "HETSPEC_DRAFTER", "HETSPEC_SAMPLER")
    return Addresses(*(system.places[name] for name in names))


def _calibrate(system: System) -> MeasuredHost:
    with Client(f"http://{system.address}") as client:
        return Calibration(_addresses(system), client, CONTEXT, 30.0).run("host", lambda _: None)


def _tasks(system: System, profile: MeasuredHost) -> list[Row]:
    """Of unseen shapes, in the same run: by kind."""
    addresses, measured = _addresses(system), profile.measured
    assert measured is not None
    real = real_shapes(addresses.weight_store)
    own = own_cost(real, Datatype.INT8)
    pricing = Pricing(profile, own.target, own.draft, real)
    pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for sample in _samples(addresses):
        predicted_ns = pricing.price(sample.work).duration_ns - measured.task_ns
        pairs[_kind(sample)].append((predicted_ns / _NS_PER_MS, sample.ns / _NS_PER_MS))
    layers = range(1, real.target.n_layers, 2)
    reads = layer_reads_ns(addresses.weight_store, measured.precision, layers)
    pairs["layer read"] = [(measured.layer_read_ms, ns / _NS_PER_MS) for ns in reads]
    everything = [one for ones in pairs.values() for one in ones]
    return [_row(kind, ones) for kind, ones in (*pairs.items(), ("all tasks", everything))]


def _samples(addresses: Addresses) -> list[Sample]:
    with open_rig(addresses) as rig:
        plan = Plan(rig.deepest(CONTEXT), rig.description.max_rows)
        rig.read(plan)
        rig.branch((64, 256, 640, 1000))
        return [sample for one in _rounds() for sample in rig.round(one)]


def _rounds() -> Iterator[Round]:
    targets: list[Tree | Chunk] = [Tree(level, rows) for rows in TREE_ROWS for level in range(4)]
    targets += [Chunk(context, rows) for rows in CHUNK_ROWS for context in (0, 500)]
    for place, target in enumerate(target for _ in range(REPEATS) for target in targets):
        yield Round(target, DRAFTS[place % len(DRAFTS)], place % 4, *HEADS[place % len(HEADS)])


def _kind(sample: Sample) -> str:
    match sample.work:
        case VerifyWork(rows_by_layer=(rows, *_)):
            if rows in CHUNK_ROWS:
                return f"prefill of {rows}"
            return "verify 1 to 8 rows" if rows <= 8 else "verify 9 to 65 rows"
        case DraftWork(head_rows=rows):
            return "draft, reading alone" if rows == 1 else "draft of several steps"
        case _:
            return "head rows"


def _requests(system: System, ids: Sequence[int]) -> list[float]:
    """Milliseconds until the last token of each: emulated where the system is, else as the client sees it."""
    taken = []
    for number in range(REQUESTS + 1):
        prompt = list(ids[number * 97 :][: 40 + 40 * number])
        options = {**MODES[number % len(MODES)], "prefix_cache": False}
        answer = system.complete(prompt, TOKENS, hetspec=options, ignore_eos=True)
        seen_ms = 1e3 * (answer.first_token_s + (answer.completion_tokens - 1) / answer.tokens_per_s)
        emulated_ns = answer.statistics.get("emulated_total_ns")
        taken.append(seen_ms if emulated_ns is None else emulated_ns / _NS_PER_MS)
    return taken[1:]  # the first one warms up


def _row(kind: str, pairs: Sequence[tuple[float, float]]) -> Row:
    predicted, measured = zip(*pairs, strict=True)
    errors = [abs(told / seen - 1) for told, seen in pairs]
    return Row(kind, len(pairs), median(predicted), median(measured), median(errors))


def table(rows: Sequence[Row]) -> str:
    lines = ["| kind | tasks | predicted (ms) | measured (ms) | median error |", "|---|---|---|---|---|"]
    cells = ((f"{r.tasks}", f"{r.predicted_ms:.2f}", f"{r.measured_ms:.2f}", f"{r.error:.1%}") for r in rows)
    return "\n".join([*lines, *(f"| {row.kind} | {' | '.join(told)} |" for row, told in zip(rows, cells, strict=True))])
