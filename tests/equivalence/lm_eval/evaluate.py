"""Has lm-eval ask a server about the task in the folder that it is called in, and prints its samples as JSON.

    python evaluate.py SERVER TOKENIZER

Its command does the same, but first reads all tasks that come with it, for half a minute.
"""

from __future__ import annotations

import json
import sys

from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

_, server, tokenizer = sys.argv
model_args = {"model": "default", "base_url": f"{server}/v1/completions", "tokenizer": tokenizer}
evaluated = simple_evaluate(
    "local-completions",
    model_args | {"tokenizer_backend": "huggingface", "max_length": 256, "max_retries": 1},
    ["proverbs"],
    batch_size=4,
    task_manager=TaskManager(include_path=".", include_defaults=False),
)
print(json.dumps([[sample["arguments"], sample["resps"]] for sample in evaluated["samples"]["proverbs"]]))
