"""python -m bench [FILE]: measures everything and writes the tables (default bench/RESULTS.md)."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

from bench import machine, peers, rounds, verify_cost
from bench.system import ROOT
from hetspec.model.checkpoint import open_checkpoint
from hetspec.text.tokenizer import TextModel
from weight_store.config import embedded_model

_ROUND_PROMPT = "def area(width, height):\n    return width * height\n\n" * 4


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "bench" / "RESULTS.md"
    text = TextModel(open_checkpoint(embedded_model()).text)
    ids = text.encode_prompt((ROOT / "LICENSE").read_text())
    prompts = {length: ids[-length - 200 : -200] for length in peers.PROMPT_LENGTHS}
    parts = [
        f"# Measurements\n\n{datetime.date.today()}, {machine.describe()}. Medians, two compute threads in all, "
        "SmolLM2-135M-Instruct (Q4_1 file; hetspec computes in int8, transformers in float32).",
        f"## Plain decoding\n\n{peers.table(peers.measure(prompts))}",
        f"## A tree round\n\n{rounds.table(rounds.measure(_ROUND_PROMPT))}",
        f"## Verifying n nodes\n\n{verify_cost.table({n: verify_cost.measure(n) for n in (1, 2)})}",
    ]
    report = "\n\n".join(parts) + "\n"
    out.write_text(report)
    print(report)


if __name__ == "__main__":
    main()
