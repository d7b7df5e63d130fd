"""python -m bench [PART ...]: measures these parts, or all, into bench/RESULTS.md; what it says of the others stays."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable

from bench import (
    emulation,
    faults,
    fidelity,
    machine,
    peers,
    prefix,
    rounds,
    scaling,
    speculation,
    startup,
    verify_cost,
)
from bench.system import ROOT
from hetspec.model.checkpoint import open_checkpoint
from hetspec.text.tokenizer import TextModel
from weight_store.config import embedded_model

_RESULTS = ROOT / "bench" / "RESULTS.md"
_ROUND_PROMPT = "def area(width, height):\n    return width * height\n\n" * 4


def _peers(ids: list[int]) -> str:
    return peers.table(peers.measure({length: ids[-length - 200 : -200] for length in peers.PROMPT_LENGTHS}))


# Title and table; `ids` are of a text.
PARTS: dict[str, tuple[str, Callable[[list[int]], str]]] = {
    "peers": ("Plain decoding", _peers),
    "prefix": ("The next turn of a conversation", lambda ids: prefix.table(prefix.measure(ids))),
    "rounds": ("A tree round", lambda _: rounds.table(rounds.measure(_ROUND_PROMPT))),
    "verify_cost": (
        "Verifying n nodes",
        lambda _: verify_cost.table({threads: verify_cost.measure(threads) for threads in (1, 2)}),
    ),
    "speculation": (
        "Speculation by kind of prompt",
        lambda _: speculation.table(speculation.measure(speculation.IN_TURN)),
    ),
    "ahead": (
        "Drafting that does not wait, in host time",
        lambda _: speculation.table(speculation.measure(speculation.AHEAD)),
    ),
    "emulation": ("Emulated time beside the host's", lambda ids: emulation.table(emulation.measure(ids))),
    "fidelity": ("A calibrated machine", lambda ids: fidelity.table(fidelity.measure(ids))),
    "scaling": ("Sessions and replicas", lambda ids: scaling.table(scaling.measure(ids))),
    "faults": ("A verifier killed under a request", lambda ids: faults.table(faults.measure(ids))),
    "startup": ("Start", lambda _: startup.table(startup.measure())),
}


def main() -> int:
    names = sys.argv[1:] or list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        print(f"bench: no part {unknown[0]!r}, only {', '.join(PARTS)}", file=sys.stderr)
        return 2
    ids = TextModel(open_checkpoint(embedded_model()).text).encode_prompt((ROOT / "LICENSE").read_text())
    known = _known_tables()
    for name in names:
        title, measure = PARTS[name]
        known[title] = measure(ids)
        print(f"\n## {title}\n\n{known[title]}\n")
        _RESULTS.write_text(_report(known))
    return 0


def _known_tables() -> dict[str, str]:
    """By title, as they were written last."""
    sections = _RESULTS.read_text().split("\n## ")[1:] if _RESULTS.exists() else []
    tables = (section.partition("\n\n") for section in sections)
    return {title: table.strip() for title, _, table in tables}


def _report(tables: dict[str, str]) -> str:
    head = (
        f"# Measurements\n\n{datetime.date.today()}, {machine.describe()}. Medians, two compute threads in all, "
        "SmolLM2-135M-Instruct (Q4_1 file; hetspec computes in int8, transformers in float32)."
    )
    titles = [title for title, _ in PARTS.values() if title in tables]
    return "\n\n".join([head, *(f"## {title}\n\n{tables[title]}" for title in titles)]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
