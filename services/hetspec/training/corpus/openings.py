"""What a target is asked, to hear it talk: user turns that it writes itself, some from their first words on.

An instruct model that is given the head of a user turn writes a question of the kind it was trained on (Magpie, arXiv
2406.08464). Openings steer what it asks for, so that every kind of task is heard; a passage is written first and asked
about then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_SHARES = (0.3, 0.36, 0.1, 0.12, 0.12)  # of free turns, questions, translations, summaries, questions about a passage
_PASSAGE_TOKENS = (40, 220)

_QUESTIONS = (
    *("Who ", "Who was ", "What is ", "What are ", "What does ", "When did ", "When was ", "Where is ", "Why do "),
    *("Why is ", "How many ", "How do I ", "How does ", "Which ", "Is it ", "Can you ", "Please describe "),
    *("Explain ", "Describe ", "Compare ", "Give me ", "List ", "Write a ", "Write an ", "Compose ", "Draft a "),
    *("Imagine ", "Pretend ", "You are ", "Suppose ", "Tell me ", "Help me ", "Suggest ", "Create ", "Design "),
    *("Write a function ", "Write a Python program ", "Implement ", "Fix this code:\n", "Solve ", "Calculate "),
    *("If ", "A ", "The ", "There are ", "Each ", "John has ", "Mary bought ", "A train ", "A store sells "),
    *("Find ", "Given ", "Extract ", "Classify ", "Rewrite ", "Edit ", "Evaluate ", "Identify ", "Discuss "),
)

_TRANSLATIONS = tuple(
    f"Translate German to English: {start}"
    for start in (
        *("Die ", "Der ", "Das ", "In ", "Im ", "Es ", "Ein ", "Eine ", "Nach ", "Auf ", "Mit ", "Auch ", "Für "),
        *("Dieser ", "Diese ", "Seit ", "Bei ", "Er ", "Sie ", "Wir ", "Wenn ", "Als ", "Nicht ", "Zum ", "Viele "),
    )
)

_ARTICLES = (
    *("The ", "A ", "In ", "On ", "It ", "This ", "He ", "She ", "They ", "When ", "After ", "According to ", "At "),
    *("The city of ", "The film ", "The president ", "Scientists ", "Police ", "A man ", "A woman ", "The team "),
    *("The company ", "During the ", "Born in ", "The episode ", "The song ", "The war ", "The first ", "Two "),
)

_ABOUT_PASSAGE = (
    *("\n\nQuestion: ", "\n\nWho ", "\n\nWhat ", "\n\nWhen ", "\n\nAnswer the question by the text above: "),
    *("\n\nSummarize the text above.", "\n\nBased on this, ", "\n\nWhat is the main point?"),
)


@dataclass(frozen=True, slots=True)
class Opening:
    """text: the first words of a user turn. passage_tokens: how many to write before `then` follows, which the model
    completes where it does not end with a full stop or a question mark; 0: the turn ends where the model ends it."""

    text: str = ""
    passage_tokens: int = 0
    then: str = ""


def draw_opening(rng: np.random.Generator) -> Opening:
    def one_of(texts: Sequence[str]) -> str:
        return texts[int(rng.integers(len(texts)))]

    match rng.choice(len(_SHARES), p=_SHARES):
        case 0:
            return Opening()
        case 1:
            return Opening(one_of(_QUESTIONS))
        case 2:
            return Opening(one_of(_TRANSLATIONS))
        case 3:
            return Opening(f"Summarize: {one_of(_ARTICLES)}", int(rng.integers(*_PASSAGE_TOKENS)))
        case _:
            return Opening(one_of(_ARTICLES), int(rng.integers(*_PASSAGE_TOKENS)), one_of(_ABOUT_PASSAGE))
