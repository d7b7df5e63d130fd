"""What a sampler does: final norm, LM head and the decoding rule, along the accepted paths of verified trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.choose import Logprobs
from hetspec.decoding.constraint import DeadEnd
from hetspec.decoding.matcher import Matchers
from hetspec.decoding.score import score
from hetspec.decoding.walk import Steps, WalkSpec, walk
from hetspec.rpc.messages import ErrorCode, PassResult, Rows, TokenLogprobs, UnitError, Walk, WalkItem, WorkTrace
from hetspec.rpc.work import ShouldStop
from sampler.checks import MAX_LOGPROBS as MAX_LOGPROBS
from sampler.checks import Scoring, checked_hidden, checked_scoring, checked_walk
from sampler.rows import Head as Head
from sampler.rows import Projection, Walked, WalkedRows


class SamplerEngine:
    """Walks the items of a task in lockstep, then scores those that only ask for logprobs.

    Items tell everything: what it keeps of sessions, how far their grammars have read their outputs, only saves time.
    """

    def __init__(
        self,
        head: Head,
        missing: NDArray[np.intp],
        check_weights: Callable[[], None],
        matchers: Matchers | None = None,
    ) -> None:
        """missing: logits that stand for no token. check_weights: raises UnitError when the head is no longer valid.
        matchers: of the model's vocabulary; None: items with a grammar are refused."""
        self._head = head
        self._missing = missing
        self._check_weights = check_weights
        self._matchers = matchers

    def run(self, items: Sequence[WalkItem], should_stop: ShouldStop) -> PassResult[Walk]:
        """A walk an item, or UnitError: INVALID for one that breaks the contract, DEAD_END where its grammar leaves no
        token to choose. Raises Stopped between steps."""
        self._check_weights()
        projection = Projection(self._head, should_stop)
        checked = [self._check(item) for item in items]
        walks = iter(self._walk([one for one in checked if isinstance(one, _Walking)], projection))
        results: list[Walk | UnitError] = []
        for one in checked:
            match one:
                case _Walking():
                    results.append(next(walks))
                case _Scored():
                    results.append(self._score(one, projection))
                case UnitError():
                    results.append(one)
        return PassResult(tuple(results), WorkTrace(head_rows=projection.rows))

    def release(self, sessions: Sequence[str]) -> None:
        """Nothing is held."""

    def _check(self, item: WalkItem) -> _Walking | _Scored | UnitError:
        vocab_size = self._head.vocab_size
        try:
            hidden = checked_hidden(item, self._head.hidden_size)
            if item.scored:
                return _Scored(checked_scoring(item, vocab_size), hidden)
            return _Walking(checked_walk(item, vocab_size, self._matchers), hidden, item.eager)
        except ValueError as error:
            return UnitError(ErrorCode.INVALID, f"{item.session}: {error}")
        except DeadEnd as error:
            return UnitError(ErrorCode.DEAD_END, str(error))

    def _walk(self, walking: Sequence[_Walking], projection: Projection) -> list[Walk | UnitError]:
        rows = WalkedRows([Walked(one.spec.tree, one.hidden, one.eager) for one in walking], projection)
        steps = walk([one.spec for one in walking], rows.logits, self._missing)
        return [_to_walk(one) for one in steps]

    def _score(self, one: _Scored, projection: Projection) -> Walk:
        def project(rows: range) -> NDArray[np.float32]:
            return projection.logits(one.hidden[rows.start : rows.stop])

        return Walk((), (), _to_messages(score(one.scoring.tokens, one.scoring.top, project, self._missing)))


@dataclass(frozen=True, slots=True)
class _Walking:
    """A sound item that walks a tree."""

    spec: WalkSpec
    hidden: Rows
    eager: bool


@dataclass(frozen=True, slots=True)
class _Scored:
    """A sound item whose tokens are given."""

    scoring: Scoring
    hidden: Rows


def _to_walk(steps: Steps) -> Walk | UnitError:
    if steps.dead_end is not None:
        return UnitError(ErrorCode.DEAD_END, steps.dead_end)
    return Walk(tuple(steps.tokens), tuple(steps.accepted), _to_messages(steps.logprobs))


def _to_messages(logprobs: Sequence[Logprobs]) -> tuple[TokenLogprobs, ...]:
    return tuple(TokenLogprobs(entry.logprob, entry.top_ids, entry.top_logprobs) for entry in logprobs)
