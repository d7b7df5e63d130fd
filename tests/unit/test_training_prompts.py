"""hetspec.training.corpus.prompts"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hetspec.model.checkpoint import open_checkpoint
from hetspec.text.tokenizer import TextModel
from hetspec.training.corpus.prompts import NO_CATEGORY, read_prompts
from hetspec.training.errors import TrainingError
from tests.models import make_checkpoint


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    return TextModel(open_checkpoint(make_checkpoint(tmp_path_factory.mktemp("target"), "qwen2")).text)


def read(folder: Path, text: TextModel, *lines: object):
    path = folder / "prompts.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return read_prompts(path, text)


def test_every_form_of_a_prompt_gives_the_same_ids(text, tmp_path):
    messages = [{"role": "user", "content": "What is a fox?"}]
    written = text.decode(text.encode_chat(messages))
    lines = ({"messages": messages, "category": "qa"}, {"turns": ["What is a fox?", "And a dog?"]}, {"prompt": written})
    first, second, third = read(tmp_path, text, lines[0], "", *lines[1:])
    assert first.ids == second.ids == third.ids == tuple(text.encode_chat(messages))
    assert [first.category, second.category] == ["qa", NO_CATEGORY]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "Expecting property name"),
        ("[]", "must be a JSON object"),
        ('{"question": "x"}', "must have one of messages, prompt, turns; has none"),
        ('{"prompt": "x", "turns": ["x"]}', "has prompt, turns"),
        ('{"messages": []}', "messages = .*, must be a list of messages"),
        ('{"turns": []}', "turns = .*, must be a list of strings"),
        ('{"turns": [1]}', "turns = .*, must be a list of strings"),
        ('{"prompt": 3}', "prompt = 3, must be a string"),
        ('{"prompt": "x", "category": 3}', "category = 3, must be a string"),
    ],
)
def test_refused_line_is_named(line, problem, text, tmp_path):
    with pytest.raises(TrainingError, match=rf"prompts\.jsonl:2: .*({problem})") as failed:
        read(tmp_path, text, {"prompt": "fine"}, line)
    assert "\n" not in str(failed.value)


def test_file_without_prompts_is_refused(text, tmp_path):
    with pytest.raises(TrainingError, match="holds no prompt"):
        read(tmp_path, text, "", "")
