"""How many tokens a request may come to."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.api.errors import invalid
from orchestrator.api.prompts import Prompt


@dataclass(frozen=True, slots=True)
class TokenLimit:
    """field: of the request. asked: None takes what is left of the context, at most `default`."""

    field: str
    asked: int | None
    default: int | None

    def tokens(self, prompt: Prompt, max_context: int) -> int:
        """Raises ApiError where the context does not hold them."""
        count = len(prompt.ids)
        room = max_context - count
        if room < (0 if self.asked == 0 else 1):
            message = f"{prompt.field}: {count} tokens leave no room in the context of {max_context}"
            raise invalid(prompt.field, message, "context_length_exceeded")
        if self.asked is None:
            return room if self.default is None else min(self.default, room)
        if self.asked > room:
            held = f"the context holds {max_context} tokens; {count} in {prompt.field} and {self.asked} asked for"
            raise invalid(self.field, f"{self.field}: {held}", "context_length_exceeded")
        return self.asked
