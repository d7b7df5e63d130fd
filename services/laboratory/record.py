"""A target's answers to a list of prompts, and what a run without the target needs of them: one `.npz` file.

about: JSON in a 0-d array of text, the fields of `About` and "format", "version".
prompt_tokens, answer_tokens: int32 [answers], how many tokens each has.
ids: uint32 [tokens], each prompt followed by its answer.
rows: float32 or float16 [tokens, hidden], the target's hidden row of each token, before its final norm; only where a
draft that reads them is to be studied. In float16 drafts are nearly, not exactly, those of the services.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetspec.model.config import ModelConfig
from hetspec.model.fingerprint import write_atomically
from laboratory.errors import StudyError

FORMAT, VERSION = "hetspec-record", 1
# The arrays' kinds and dimensions.
_ARRAYS = {"about": ("U", 0), "prompt_tokens": ("i", 1), "answer_tokens": ("i", 1), "ids": ("u", 1)}
_ROWS = {"rows": ("f", 2)}
Hidden = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class About:
    """The target, and how it was asked. target: its name. config: of `ModelConfig`, as JSON. categories: of each
    answer's prompt. seed: prompt i was answered with seed + i."""

    target: str
    fingerprint: str
    precision: str
    config: str
    end_ids: list[int]
    max_tokens: int
    temperature: float
    seed: int
    categories: list[str]

    @property
    def model(self) -> ModelConfig:
        return ModelConfig.from_json(self.config)


@dataclass(frozen=True, slots=True)
class Answer:
    """rows: [prompt + tokens, hidden], where the record has them."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    category: str
    rows: Hidden | None = None

    @property
    def exact_rows(self) -> NDArray[np.float32] | None:
        return None if self.rows is None else self.rows.astype(np.float32, copy=False)

    @property
    def ids(self) -> tuple[int, ...]:
        return self.prompt + self.tokens


@dataclass(frozen=True, slots=True)
class Record:
    about: About
    answers: tuple[Answer, ...]

    @property
    def has_rows(self) -> bool:
        return all(answer.rows is not None for answer in self.answers)

    def check_target(self, fingerprint: str) -> None:
        """Raises StudyError where it is another target's."""
        if fingerprint != self.about.fingerprint:
            told = f"{self.about.fingerprint:.12}, not {fingerprint:.12}"
            raise StudyError(f"the record is of another target than the draft is for: {self.about.target}, {told}")


def write_record(path: Path, record: Record) -> None:
    """Raises OSError."""
    answers = record.answers
    about = {"format": FORMAT, "version": VERSION, **asdict(record.about)}
    arrays: dict[str, NDArray[Any]] = {
        "about": np.array(json.dumps(about)),
        "prompt_tokens": np.array([len(answer.prompt) for answer in answers], np.int32),
        "answer_tokens": np.array([len(answer.tokens) for answer in answers], np.int32),
        "ids": np.array([token for answer in answers for token in answer.ids], np.uint32),
    }
    if record.has_rows:
        arrays["rows"] = np.concatenate([answer.rows for answer in answers if answer.rows is not None])
    data = io.BytesIO()
    np.savez(data, **arrays)  # type: ignore[arg-type]
    write_atomically(path, data.getvalue())


def read_record(path: Path) -> Record:
    """Raises StudyError, one line that names the file."""
    try:
        data = io.BytesIO(path.read_bytes())
    except OSError as error:
        raise StudyError(f"{path}: {error.strerror}") from error
    try:
        if not zipfile.is_zipfile(data):
            raise ValueError("must be an .npz file")
        with np.load(data, allow_pickle=False) as file:
            return _record(dict(file))
    except (OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise StudyError(f"{path}: no record of `hetspec record`: {' '.join(str(error).split())}") from error


def _record(arrays: Mapping[str, NDArray[Any]]) -> Record:
    """Raises ValueError."""
    if not arrays.keys() - _ROWS.keys() == _ARRAYS.keys():
        raise ValueError(f"holds {', '.join(sorted(arrays))}; a record holds {', '.join(sorted(_ARRAYS))} and may rows")
    for name, array in arrays.items():
        kind, dimensions = (_ARRAYS | _ROWS)[name]
        if not isinstance(array, np.ndarray) or (array.dtype.kind, array.ndim) != (kind, dimensions):
            raise ValueError(f"{name}: must be an array of type {kind!r} and {dimensions} dimensions")
    about = _about(str(arrays["about"]))
    prompts, tokens, ids = arrays["prompt_tokens"], arrays["answer_tokens"], arrays["ids"]
    if not len(prompts) == len(tokens) == len(about.categories):
        raise ValueError(f"{len(prompts)} prompts, {len(tokens)} answers, {len(about.categories)} categories: differ")
    if min(prompts, default=1) < 1 or min(tokens, default=1) < 1 or prompts.sum() + tokens.sum() != len(ids):
        raise ValueError(f"prompt_tokens and answer_tokens must be positive and sum to the {len(ids)} ids")
    if max(ids, default=0) >= (vocabulary := about.model.vocab_size):
        raise ValueError(f"ids: {max(ids)}, must be below {vocabulary}")
    rows = arrays.get("rows")
    if rows is not None and (rows.shape != (len(ids), about.model.hidden_size) or not np.isfinite(rows).all()):
        raise ValueError(f"rows: {rows.shape}, must be {(len(ids), about.model.hidden_size)}, and finite")
    return Record(about, tuple(_answers(about.categories, prompts.tolist(), tokens.tolist(), ids, rows)))


def _about(text: str) -> About:
    told = json.loads(text)
    if not isinstance(told, dict) or (told.pop("format", None), told.pop("version", None)) != (FORMAT, VERSION):
        raise ValueError(f"about: must be an object of format {FORMAT}, version {VERSION}")
    if told.keys() != (wanted := {field.name for field in fields(About)}):
        raise ValueError(f"about: has {', '.join(sorted(told))}; must have {', '.join(sorted(wanted))}")
    return About(**told)


def _answers(
    categories: Sequence[str], prompts: Sequence[int], tokens: Sequence[int], ids: NDArray[Any], rows: Hidden | None
) -> Iterator[Answer]:
    bounds = pairwise([0, *np.cumsum(np.add(prompts, tokens)).tolist()])
    for category, prompt, (first, last) in zip(categories, prompts, bounds, strict=True):
        known = tuple(ids[first:last].tolist())
        yield Answer(known[:prompt], known[prompt:], category, None if rows is None else rows[first:last])
