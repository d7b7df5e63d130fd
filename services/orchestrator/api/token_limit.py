"""How many tokens a request may come to."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.api.errors import invalid
from orchestrator.api.prompts import Prompt
from orchestrator.engine.model import EngineDescription


@dataclass(frozen=True, slots=True)
class TokenLimit:
    """field: of the request. asked: None takes what is left of the context, at most `default`."""

    field: str
    asked: int | None
    default: int | None

    def tokens(self, prompt: Prompt, served: EngineDescription) -> int:
        """Raises ApiError where the context does not hold them."""
        count = len(prompt.ids)
        room = served.max_context - count
        if room < (0 if self.asked == 0 else 1):
            message = f"{prompt.field}: {count} tokens leave no room in {served.context}"
            raise invalid(prompt.field, message, "context_length_exceeded")
        if self.asked is None:
            return room if self.default is None else min(self.default, room)
        if self.asked > room:
            wanted = f"{count} tokens in {prompt.field} and {self.asked} asked for do not fit {served.context}"
            raise invalid(self.field, f"{self.field}: {wanted}", "context_length_exceeded")
        return self.asked
