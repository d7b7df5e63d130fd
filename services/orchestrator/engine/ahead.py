"""What a session's drafter has drafted beyond what is decided: a tree that grows while its first nodes are verified.

Batch by batch the drafter grows one tree. A batch that is drafted ahead begins with *outcomes*: nodes that stand for
the bonus token that the verification of the batch before it may end with. Where it does end so, the batch below that
node is what is to be verified next. Else all of the tree is void.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.rpc.messages import Draft, Walk
from orchestrator.engine.seat import Mark
from orchestrator.policies.control import AheadReport
from orchestrator.timeline.task import Task


@dataclass(frozen=True, slots=True)
class Batch:
    """Nodes of the tree from `first` up to `stop`, made by these tasks. entropy: in nats, the mean over those that the
    draft model proposed. index: by which the drafting control knows it."""

    first: int
    stop: int
    entropy: float
    index: int | None = None
    tasks: tuple[Task, ...] = ()


@dataclass(frozen=True, slots=True)
class Unverified:
    """What is verified of a batch. nodes: what each node of the draft is in the whole tree."""

    draft: Draft
    nodes: tuple[int, ...]
    batch: Batch


@dataclass(slots=True)
class Ahead:
    """base: where the tree hangs. draft: the whole tree. root: its node that the session's last token is, or ROOT.
    path: its nodes that have been decided, from the first level down to the root. batches: the unverified draft queue.
    outcomes: where the nodes begin that a batch was begun with and that nothing hangs below yet; tasks: that found
    them. settled: nodes that were verified, or that a verification ended with, of which there are `landings`.
    first_batch: nodes of the batch behind decided tokens."""

    base: Mark
    draft: Draft = Draft()
    root: int = ROOT
    path: list[int] = field(default_factory=list)
    batches: deque[Batch] = field(default_factory=deque)
    newest: Batch | None = None
    first_batch: int = 0
    outcomes: int | None = None
    tasks: tuple[Task, ...] = ()
    may_grow: bool = True
    settled: set[int] = field(default_factory=set)
    landings: int = 0

    def add(self, draft: Draft, batch: Batch) -> None:
        """The tree has grown to this one, by a batch."""
        if self.newest is None:
            self.first_batch = batch.stop
        self.draft, self.outcomes, self.tasks, self.newest = draft, None, (), batch
        self.batches.append(batch)

    def begin(self, draft: Draft, first: int, task: Task | None) -> None:
        """The tree has grown by outcomes, from `first` on."""
        self.draft, self.outcomes = draft, first
        self.tasks = () if task is None else (task,)

    def next(self) -> Unverified | None:
        """The oldest batch, as far as it hangs below the root; one of which nothing does is passed over. With it comes
        what else hangs there and was not verified: what left the target's pass early."""
        while self.batches:
            batch = self.batches.popleft()
            nodes = self.below(self.root, 0, batch.stop)
            if nodes or batch.first == 0:
                self.settled.update(nodes)
                return Unverified(_part(self.draft, nodes, self.root), tuple(nodes), batch)
        return None

    def lands(self, verified: Unverified, walk: Walk) -> int | None:
        """The node that the last token of a walk over what was verified is. None: it is none."""
        if len(walk.tokens) == len(walk.accepted):
            return None  # it was the last token of all
        return self.draft.tree.child(self._end(verified, walk), walk.tokens[-1])

    def judge(self, verified: Unverified, walk: Walk) -> bool:
        """Whether the tree lives on, below what has now been decided."""
        landing = self.lands(verified, walk)
        self.path += [verified.nodes[node] for node in walk.accepted]
        if landing is None:
            return False
        self.path.append(landing)
        self.settled.add(landing)
        self.landings += 1
        self.root = landing
        return True

    def follow(self, tokens: Sequence[int]) -> list[int]:
        """Nodes that hold these tokens, down from the root, as far as there are any."""
        nodes, node = list[int](), self.root
        for token in tokens:
            if (child := self.draft.tree.child(node, token)) is None:
                break
            nodes.append(child)
            node = child
        return nodes

    def below(self, node: int, first: int, stop: int) -> list[int]:
        """Of the nodes from `first` up to `stop`, those that hang below this one."""
        parents = self.draft.tree.parents
        under = {node}
        for i in range(node + 1, stop):
            if parents[i] in under:
                under.add(i)
        return sorted(i for i in under if i != node and first <= i)

    def holds(self, node: int, first: int) -> bool:
        """Whether anything from node `first` on is this node or hangs below it."""
        return first <= node < len(self.draft.tree) or bool(self.below(node, first, len(self.draft.tree)))

    @property
    def unverified(self) -> tuple[Task, ...]:
        """Tasks that made what was never to be verified."""
        return (*(task for batch in self.batches for task in batch.tasks), *self.tasks)

    def settle(self, report: AheadReport) -> None:
        """Counts how each node has ended, when the tree is given up."""
        report.drafted += len(self.draft.tree)
        report.accepted += len(self.path) - self.landings
        report.confirmed += self.landings
        report.rejected += len(self.settled) - len(self.path)
        report.dropped += len(self.draft.tree) - len(self.settled)

    @property
    def length(self) -> int:
        """Of the longest text that the tree holds, in tokens."""
        return self.base.length + max(self.draft.tree.depths(), default=0)

    def _end(self, verified: Unverified, walk: Walk) -> int:
        return verified.nodes[walk.accepted[-1]] if walk.accepted else self.root


def is_in_full(tree: TokenTree, walk: Walk) -> bool:
    """Whether a walk went down to a leaf; over an empty tree it did not."""
    end = walk.accepted[-1] if walk.accepted else ROOT
    return bool(len(tree)) and end not in tree.parents


def likeliest_path(draft: Draft) -> list[int]:
    """Tokens of the path that takes the likeliest child at every node."""
    tokens, node, tree = list[int](), ROOT, draft.tree
    while children := [child for child, parent in enumerate(tree.parents) if parent == node]:
        node = max(children, key=lambda child: (draft.probabilities[child], -child))
        tokens.append(tree.tokens[node])
    return tokens


def mean_entropy(draft: Draft, first: int) -> float:
    """Over nodes from `first` on that the draft model proposed; 0 where there are none."""
    proposed = [entropy for entropy in draft.entropies[first:] if entropy > 0]
    return sum(proposed) / len(proposed) if proposed else 0.0


def _part(draft: Draft, nodes: list[int], root: int) -> Draft:
    """These nodes, all that hang below `root` of what is below it down to them, as a tree of their own."""
    places = {root: ROOT} | {node: place for place, node in enumerate(nodes)}
    tree = draft.tree
    part = TokenTree(tuple(tree.tokens[node] for node in nodes), tuple(places[tree.parents[node]] for node in nodes))
    return Draft(
        part,
        tuple(draft.probabilities[node] for node in nodes),
        tuple(draft.sources[node] for node in nodes),
        draft.spent,
        tuple(draft.entropies[node] for node in nodes),
    )
