from __future__ import annotations

from pathlib import Path

import pytest

from tests.models import make_checkpoint


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packs, made once for all tests."""
    return tmp_path_factory.mktemp("packs")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target of four layers with q/k norm and an embedding that has more rows than there are tokens."""
    return make_checkpoint(tmp_path_factory.mktemp("tiny"), "qwen3", num_hidden_layers=4)


@pytest.fixture(scope="session")
def tiny_random_draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the target's vocabulary and nothing else in common with it."""
    shape = {"num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 64}
    return make_checkpoint(tmp_path_factory.mktemp("random"), "qwen3", seed=1, **shape)


@pytest.fixture
def no_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafters of this process draft with their model alone: no n-gram is short enough to be looked up."""
    monkeypatch.setattr("hetspec.drafting.lookup.MAX_NGRAM", 0)
