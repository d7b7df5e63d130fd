"""What answers came to in an emulated world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hetspec.hardware.cost import Component
from orchestrator.clock.presence import Key
from orchestrator.engine.request import Statistics
from orchestrator.policies.control import AheadReport
from orchestrator.policies.tvc import TvcReport


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one answer, or of several together.

    tokens: given out. decoded: of these, the ones after an answer's first. rounds: passes that gave tokens, the first
    of which reads the prompt's end. nodes: drafted ones that the target verified; accepted: of these. first_ns: until
    the first token; total_ns: until the last. time_ns: by device and component. Of what was drafted ahead: drafted,
    nodes; dropped, those that were never verified; survived, lost: verifications after which it was of use, or void;
    checks: by the drafter; failed: of these. batches: whose verdict drafting control foretold; foretold: rightly.
    errors: of what check control foretold.
    """

    tokens: int = 0
    decoded: int = 0
    rounds: int = 0
    nodes: int = 0
    accepted: int = 0
    rested: int = 0
    drafted: int = 0
    dropped: int = 0
    survived: int = 0
    lost: int = 0
    checks: int = 0
    failed: int = 0
    batches: int = 0
    foretold: int = 0
    first_ns: int = 0
    total_ns: int = 0
    energy_pj: int = 0
    time_ns: Mapping[Key, int] = field(default_factory=dict)
    errors: TvcReport = TvcReport()

    @classmethod
    def of(cls, statistics: Statistics) -> Outcome:
        presence = statistics.presence
        assert presence is not None  # in an emulated world
        ahead = statistics.ahead or AheadReport()
        at_once = sum(1 for at_ns in presence.token_ns if at_ns == presence.token_ns[0])
        return cls(
            tokens=statistics.emitted,
            decoded=statistics.emitted - at_once,
            rounds=statistics.rounds,
            nodes=statistics.verified,
            accepted=statistics.accepted,
            rested=statistics.lever.rested if statistics.lever else 0,
            drafted=ahead.drafted,
            dropped=ahead.dropped,
            survived=ahead.survived,
            lost=ahead.lost,
            checks=ahead.checks_passed + ahead.checks_failed,
            failed=ahead.checks_failed,
            batches=ahead.edc.verified if ahead.edc else 0,
            foretold=ahead.edc.foretold if ahead.edc else 0,
            first_ns=presence.token_ns[0],
            total_ns=presence.total_ns,
            energy_pj=presence.energy_pj().total(),
            time_ns=presence.time_ns(),
            errors=ahead.tvc or TvcReport(),
        )

    @property
    def decode_ns(self) -> float:
        """A token, once the first is there."""
        return (self.total_ns - self.first_ns) / self.decoded if self.decoded else 0.0

    @property
    def accept_length(self) -> float:
        """Tokens a round, the rounds that gave the first ones left out."""
        return self.decoded / self.draft_rounds if self.draft_rounds else 0.0

    @property
    def draft_rounds(self) -> int:
        return self.rounds - (self.tokens - self.decoded)

    @property
    def round_ns(self) -> float:
        return (self.total_ns - self.first_ns) / self.draft_rounds if self.draft_rounds else 0.0

    @property
    def io_share(self) -> float:
        """Of the time, what was waited for flash."""
        waited = sum(ns for (_, component), ns in self.time_ns.items() if component == Component.FLASH)
        return waited / self.total_ns if self.total_ns else 0.0

    def idle_share(self, device: str) -> float:
        """Of the time, what the device did nothing for this answer."""
        busy = sum(ns for (name, part), ns in self.time_ns.items() if name == device and part != "waited")
        return 1 - busy / self.total_ns if self.total_ns else 0.0

    @property
    def token_pj(self) -> float:
        """The prompt's energy included."""
        return self.energy_pj / self.tokens if self.tokens else 0.0


def together(outcomes: Iterable[Outcome]) -> Outcome:
    found = list(outcomes)
    counts = {name: sum(getattr(one, name) for one in found) for name in _COUNTED}
    times = Counter[Key]()
    for one in found:
        times.update(one.time_ns)
    errors = sum((one.errors for one in found), TvcReport())
    return Outcome(**counts, time_ns=times, errors=errors)


_COUNTED = (
    "tokens", "decoded", "rounds", "nodes", "accepted", "rested", "drafted", "dropped", "survived", "lost", "checks",
    "failed", "batches", "foretold", "first_ns", "total_ns", "energy_pj",
)  # fmt: skip
