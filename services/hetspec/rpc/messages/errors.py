"""A unit's typed refusals."""

from __future__ import annotations

from enum import IntEnum

from hetspec.v1 import common_pb2


class ErrorCode(IntEnum):
    SESSION_LOST = common_pb2.SESSION_LOST
    CANCELLED = common_pb2.CANCELLED
    DEADLINE_EXCEEDED = common_pb2.DEADLINE_EXCEEDED
    INVALID = common_pb2.INVALID
    EXHAUSTED = common_pb2.EXHAUSTED
    OUT_OF_CREDITS = common_pb2.OUT_OF_CREDITS
    WEIGHTS_UNAVAILABLE = common_pb2.WEIGHTS_UNAVAILABLE
    INTERNAL = common_pb2.INTERNAL
    DEAD_END = common_pb2.DEAD_END


class UnitError(Exception):
    """A unit's typed refusal, of a task or of one of its items."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message

    def to_pb(self) -> common_pb2.Error:
        return common_pb2.Error(code=common_pb2.ErrorCode.ValueType(int(self.code)), message=self.message)

    @classmethod
    def from_pb(cls, pb: common_pb2.Error) -> UnitError:
        return cls(ErrorCode(pb.code), pb.message)
