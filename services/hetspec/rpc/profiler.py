"""The contract of `Profiler` (profiler.proto), which every service answers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NoReturn

import grpc
import grpc.aio

from hetspec.telemetry.profile import MetricChange, OperatorTotal, Profile, Sampler, Stack, TaskSpan
from hetspec.telemetry.profiler import Profiler, ProfilerBusyError
from hetspec.v1 import profiler_pb2 as pb
from hetspec.v1 import profiler_pb2_grpc

PROFILER: str = pb.DESCRIPTOR.services_by_name["Profiler"].full_name
_Context = grpc.aio.ServicerContext[Any, Any]


class ProfilerServicer(profiler_pb2_grpc.ProfilerServicer):
    def __init__(self, profiler: Profiler) -> None:
        self._profiler = profiler

    async def Profile(self, request: pb.ProfileRequest, context: _Context) -> pb.ProfileReply:
        try:
            return profile_to_pb(await self._profiler.profile(request.seconds))
        except ValueError as error:
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, error)
        except ProfilerBusyError as error:
            await _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, error)


async def _abort(context: _Context, code: grpc.StatusCode, problem: Exception) -> NoReturn:
    await context.abort(code, str(problem))
    raise AssertionError("abort returned")


def profile_to_pb(profile: Profile) -> pb.ProfileReply:
    return pb.ProfileReply(
        sampler=pb.StackSampler(**asdict(profile.sampler)),
        start_ns=profile.start_ns,
        end_ns=profile.end_ns,
        stacks=[pb.Stack(**asdict(stack)) for stack in profile.stacks],
        operators=[pb.OperatorTotal(**asdict(total)) for total in profile.operators],
        metrics=[pb.MetricChange(**asdict(change)) for change in profile.metrics],
        tasks=[pb.TaskSpan(**asdict(span)) for span in profile.tasks],
        tasks_dropped=profile.tasks_dropped,
    )


def profile_from_pb(reply: pb.ProfileReply) -> Profile:
    return Profile(
        sampler=Sampler(reply.sampler.name, reply.sampler.rate_hz, reply.sampler.note),
        start_ns=reply.start_ns,
        end_ns=reply.end_ns,
        stacks=tuple(Stack(stack.thread, tuple(stack.frames), stack.samples) for stack in reply.stacks),
        operators=tuple(OperatorTotal(**_fields(total)) for total in reply.operators),
        metrics=tuple(MetricChange(change.name, dict(change.labels), change.value) for change in reply.metrics),
        tasks=tuple(TaskSpan(**_fields(span)) for span in reply.tasks),
        tasks_dropped=reply.tasks_dropped,
    )


def _fields(message: Any) -> dict[str, Any]:
    """Of a message whose fields are named as those of its record."""
    return {field.name: getattr(message, field.name) for field in message.DESCRIPTOR.fields}
