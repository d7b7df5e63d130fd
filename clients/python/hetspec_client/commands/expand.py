"""Options that several verbs share: a dataclass is a group of options, its fields are the options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints


def expand(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb as Typer reads it: a parameter of a dataclass type stands for that dataclass' fields.

    Fields without a default are not allowed.
    """
    hints = get_type_hints(verb, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(verb).parameters.items():
        parameters += _options(groups[name]) if name in groups else [parameter.replace(annotation=hints[name])]

    @functools.wraps(verb)
    def expanded(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        verb(**given)

    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return expanded


def _options(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(f.name, kind, default=f.default, annotation=hints[f.name]) for f in fields(group)]
