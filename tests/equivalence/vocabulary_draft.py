"""A random model of another one's vocabulary."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer

from hetspec.model.checkpoint import open_checkpoint


def make_vocabulary_draft(directory: Path, target: Path) -> Path:
    """A Hugging Face directory: one narrow layer, the tokenizer of `target`."""
    checkpoint = open_checkpoint(target)
    text, vocab_size = checkpoint.text, checkpoint.config.vocab_size
    config = transformers.LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=checkpoint.config.max_context,
        bos_token_id=text.bos_id,
        eos_token_id=text.end_ids[0],
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.LlamaForCausalLM(config).save_pretrained(directory)
    tokenizer = Tokenizer.from_str(text.tokenizer_json)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **text.special_tokens)
    fast.save_pretrained(directory)
    return directory
