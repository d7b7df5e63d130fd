"""Stacks with the operators of the native passes as their leaves, and the tree that they make.

To a profiler of Python a native pass is one place. Its samples are shared out among the operators as the pass's own
clocks say: in proportion to the time each took in the same window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from hetspec_client.observe.profile import Operator, Profile, Stack

_NATIVE = "native_"  # what functions that call a pass are named: native_layers, native_head, native_features


@dataclass(frozen=True, slots=True)
class Frame:
    name: str
    is_operator: bool = False


@dataclass(frozen=True, slots=True)
class WeighedStack:
    """samples: not whole once they are shared out."""

    thread: str
    frames: tuple[Frame, ...]
    samples: float


def weighed_stacks(profile: Profile) -> list[WeighedStack]:
    """Their samples add up to the profile's."""
    return [part for stack in profile.stacks for part in _share_out(stack, profile.operators)]


def _share_out(stack: Stack, operators: Sequence[Operator]) -> Iterator[WeighedStack]:
    frames = tuple(map(Frame, stack.frames))
    ours = [operator for operator in operators if stack.frames and _calls(stack.frames[-1], operator.group)]
    total_ns = sum(operator.ns for operator in ours)
    if not total_ns:
        yield WeighedStack(stack.thread, frames, stack.samples)
        return
    for operator in ours:
        leaf = Frame(operator.name, is_operator=True)
        yield WeighedStack(stack.thread, (*frames, leaf), stack.samples * operator.ns / total_ns)


def _calls(frame: str, group: str) -> bool:
    return frame.partition(" ")[0] == _NATIVE + group


@dataclass(slots=True)
class Node:
    """samples: its own and those of what it called."""

    frame: Frame
    samples: float = 0.0
    children: dict[Frame, Node] = field(default_factory=dict)

    def child(self, frame: Frame) -> Node:
        if frame not in self.children:
            self.children[frame] = Node(frame)
        return self.children[frame]

    @property
    def depth(self) -> int:
        """Of the tree below it, itself included."""
        return 1 + max((child.depth for child in self.children.values()), default=0)


def tree(stacks: Iterable[WeighedStack], root: str) -> Node:
    """The busiest thread first; frames by name, so that pictures can be compared; operators as they run."""
    top = Node(Frame(root))
    for stack in stacks:
        node = top
        for frame in (Frame(stack.thread), *stack.frames):
            node.samples += stack.samples
            node = node.child(frame)
        node.samples += stack.samples
    top.children = dict(sorted(top.children.items(), key=lambda item: -item[1].samples))
    for thread in top.children.values():
        _sort(thread)
    return top


def _sort(node: Node) -> None:
    node.children = dict(sorted(node.children.items(), key=lambda item: "" if item[0].is_operator else item[0].name))
    for child in node.children.values():
        _sort(child)
