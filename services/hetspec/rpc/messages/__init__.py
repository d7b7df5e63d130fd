"""The records that travel between the orchestrator and the units, as plain typed data.

Protobuf is met here and nowhere further in: `to_pb` and `from_pb` on each record, servicers and unit clients call them.
"""

from hetspec.rpc.messages.decoding import Rows, rows_from_bytes, rows_to_bytes
from hetspec.rpc.messages.drafter import Draft, DraftItem, DraftPolicy, LookAhead
from hetspec.rpc.messages.errors import ErrorCode, UnitError
from hetspec.rpc.messages.sampler import TokenLogprobs, Walk, WalkItem
from hetspec.rpc.messages.task import PassResult, SessionUpdate, Timing, WorkTrace
from hetspec.rpc.messages.verifier import EarlyExit, HiddenRows, HiddenStates, VerifyItem

__all__ = [
    "Draft",
    "DraftItem",
    "DraftPolicy",
    "EarlyExit",
    "ErrorCode",
    "HiddenRows",
    "HiddenStates",
    "LookAhead",
    "PassResult",
    "Rows",
    "SessionUpdate",
    "Timing",
    "TokenLogprobs",
    "UnitError",
    "VerifyItem",
    "Walk",
    "WalkItem",
    "WorkTrace",
    "rows_from_bytes",
    "rows_to_bytes",
]
