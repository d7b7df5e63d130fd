"""An engine without units: it says what a test scripted, in the shapes of the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from hetspec.decoding.constraint import Grammar
from hetspec.decoding.grammar import GrammarError
from hetspec.rpc.messages import TokenLogprobs
from hetspec.text.text_spec import TextSpec
from hetspec.text.tokenizer import TextModel
from orchestrator.engine.request import Emission, EmittedToken, GenerationRequest, Statistics
from orchestrator.policies.control import AheadReport
from orchestrator.policies.edc import EdcTables

Step = Emission | Exception | asyncio.Event  # told, raised, waited for
Script = Callable[[GenerationRequest], Iterable[Step]]

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"


def byte_level_text() -> TextModel:
    """One token a byte: ids 0 to 255 in the alphabet's order, then <end>."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<end>", special=True)])
    return TextModel(
        TextSpec(
            tokenizer_json=tokenizer.to_str(),
            chat_template=TEMPLATE,
            bos_id=None,
            end_ids=(256,),
            add_bos=False,
            special_tokens={},
        )
    )


@dataclass
class Description:
    model: str = "fake-model"
    max_context: int = 256
    context: str = "the context of 256"
    vocab_size: int = 257
    fingerprint: str = "weights"
    precision: str = "int8"
    digests: dict[str, str] = field(default_factory=lambda: {"verifier": "v", "sampler": "s"})


class FakeGeneration:
    def __init__(self, engine: FakeEngine, request: GenerationRequest) -> None:
        self._engine = engine
        self._steps = iter(engine.script(request))
        self.closed = False
        self.statistics = Statistics(
            mode=request.mode,
            rounds=3,
            drafted=9,
            verified=9,
            accepted=6,
            emitted=9,
            cached_tokens=2,
            drafted_by_depth=[5, 4],
            accepted_by_depth=[4, 2],
            drafted_by_source={"model": 9},
            accepted_by_source={"model": 6},
            host_ns={"verifier": 1_000, "sampler": 200},
            seed=request.noise.seed,
            ahead=engine.ahead,
        )

    def __aiter__(self) -> FakeGeneration:
        return self

    async def __anext__(self) -> Emission:
        for step in self._steps:
            match step:
                case Emission():
                    await asyncio.sleep(0)
                    return step
                case asyncio.Event():
                    await step.wait()
                case _:
                    raise step
        raise StopAsyncIteration

    async def aclose(self) -> None:
        await asyncio.sleep(0)  # to free units takes a moment, also while the request is being cancelled
        if not self.closed:
            self.closed = True
            self._engine.open -= 1
            self._engine.released.set()


class FakeEngine:
    world = None  # its clock is the host's
    problem: str | None = None

    def __init__(self, script: Script) -> None:
        self.script = script
        self.text = byte_level_text()
        self.description = Description()
        self.units = {"verifier": True, "sampler": True, "drafter": True}
        self.requests: list[GenerationRequest] = []
        self.grammars: list[Grammar] = []  # found to be good
        self.grammar_refusal = ""
        self.edc = EdcTables()
        self.judges_acceptance = False
        self.ahead: AheadReport | None = None  # of every request
        self.open = 0
        self.released = asyncio.Event()

    def ready(self) -> dict[str, bool]:
        return dict(self.units)

    def replicas(self) -> dict[str, int]:
        return {unit: int(there) for unit, there in self.units.items()}

    def generate(self, request: GenerationRequest) -> FakeGeneration:
        self.requests.append(request)
        self.open += 1
        return FakeGeneration(self, request)

    async def check_grammar(self, grammar: Grammar) -> None:
        if self.grammar_refusal:
            raise GrammarError(self.grammar_refusal)
        self.grammars.append(grammar)

    async def start(self) -> None: ...

    async def close(self) -> None: ...


def tokens(text: TextModel, piece: str, top: int | None = None) -> tuple[EmittedToken, ...]:
    """The piece's tokens, each with log-probability -0.5 and `top` rivals at -1, -2, ..."""
    return tuple(
        EmittedToken(id_, None if top is None else TokenLogprobs(-0.5, *_rivals(id_, top)))
        for id_ in text.encode_prompt(piece)
    )


def _rivals(id_: int, top: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    if top == 0:
        return (), ()
    ids = (id_, *(other for other in range(40, 60) if other != id_))[:top]
    return ids, (-0.5, *(-float(rank) for rank in range(1, top)))


def says(*pieces: str, finish: str = "stop") -> Script:
    """Emits the pieces one by one; the last one ends the generation."""
    text = byte_level_text()

    def script(request: GenerationRequest) -> Iterable[Step]:
        for number, piece in enumerate(pieces, 1):
            reason = finish if number == len(pieces) else None
            yield Emission(piece, tokens(text, piece, request.top_logprobs), reason)  # type: ignore[arg-type]

    return script
