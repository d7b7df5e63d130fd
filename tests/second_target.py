"""A target of its own: a tiny Llama with its own tokenizer, taught for seconds what its texts are like."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import torch
import transformers

from tests.models import FAMILIES, make_checkpoint
from tests.vocabularies import byte_level

_ANIMALS = ("fox", "dog", "cat", "hen", "owl", "ant")
_PLACES = ("house", "tree", "river", "field", "road", "hill")
_STEPS, _BATCH, _LENGTH = 110, 16, 96


def make_second_target(folder: Path) -> Path:
    """As a Hugging Face directory. Deterministic."""
    make_checkpoint(
        folder, "llama3", rope_parameters={"rope_type": "default", "rope_theta": 1e4}, initializer_range=0.1
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = _texts()
    optimiser = torch.optim.AdamW(model.parameters(), 4e-3, weight_decay=0.0)
    generator = torch.Generator().manual_seed(0)
    for step in range(_STEPS):
        starts = torch.randint(len(ids) - _LENGTH, (_BATCH,), generator=generator).tolist()
        batch = torch.stack([ids[start : start + _LENGTH] for start in starts])
        for group in optimiser.param_groups:
            group["lr"] = 4e-3 * (1 - step / _STEPS)
        optimiser.zero_grad()
        model(input_ids=batch, labels=batch).loss.backward()
        optimiser.step()
    model.save_pretrained(folder)
    return folder


def questions() -> list[str]:
    return [f"Where does the {animal} by the {place} go?" for animal, place in product(_ANIMALS, _PLACES)]


def _texts() -> torch.Tensor:
    """Conversations in the chat template's form, one after another."""
    vocabulary = byte_level(FAMILIES["llama3"].pre)
    answers = (
        f"The {animal} by the {place} goes over the {place} and back again, and it does not mind at all."
        for animal, place in product(_ANIMALS, _PLACES)
    )
    talks = [
        f"<|endoftext|><|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n"
        for question, answer in zip(questions(), answers, strict=True)
    ]
    order = torch.randperm(len(talks), generator=torch.Generator().manual_seed(1)).tolist()
    return torch.tensor(vocabulary.tokenizer.encode("".join(talks[place] for place in order)).ids)
