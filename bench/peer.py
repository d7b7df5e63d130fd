"""python -m bench.peer transformers|llama.cpp: one peer in a process of its own, told what to measure line by line.

A request is {"prompt": [ids], "new": n}; the answer {"first_token_s": ..., "tokens_per_s": ...}. Greedy, two threads,
the weights of the embedded default model: transformers computes in float32, llama.cpp on the file as it is.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

THREADS = 2
Measure = Callable[[list[int], int], tuple[float, float]]


def main() -> None:
    os.environ |= {"OMP_NUM_THREADS": str(THREADS), "OMP_WAIT_POLICY": "PASSIVE"}
    measure = {"transformers": _transformers, "llama.cpp": _llama_cpp}[sys.argv[1]]()
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        first_token_s, rest_s = measure(request["prompt"], request["new"])
        rate = (request["new"] - 1) / rest_s
        print(json.dumps({"first_token_s": first_token_s, "tokens_per_s": rate}), flush=True)


def _transformers() -> Measure:
    import torch
    import transformers

    from tests.equivalence.reference import load_llama_gguf
    from weight_store.config import embedded_model

    torch.set_num_threads(THREADS)
    transformers.utils.logging.disable_progress_bar()
    model = load_llama_gguf(embedded_model())

    def measure(prompt: list[int], new: int) -> tuple[float, float]:
        ids = torch.tensor([prompt])
        times: list[float] = []

        class Clock(transformers.generation.streamers.BaseStreamer):
            def put(self, value: object) -> None:
                times.append(time.perf_counter())

            def end(self) -> None:
                pass

        start = time.perf_counter()
        model.generate(ids, max_new_tokens=new, min_new_tokens=new, do_sample=False, streamer=Clock(), pad_token_id=2)
        # The prompt itself is put first.
        return times[1] - start, times[-1] - times[1]

    return measure


def _llama_cpp() -> Measure:
    import llama_cpp

    from weight_store.config import embedded_model

    model = llama_cpp.Llama(
        str(embedded_model()), n_ctx=2048, n_threads=THREADS, n_threads_batch=THREADS, verbose=False
    )

    def measure(prompt: list[int], new: int) -> tuple[float, float]:
        model.reset()
        start = time.perf_counter()
        times: list[float] = []
        for _ in model.generate(prompt, temp=0.0, reset=True):
            times.append(time.perf_counter())
            if len(times) == new:
                break
        return times[0] - start, times[-1] - times[0]

    return measure


if __name__ == "__main__":
    main()
