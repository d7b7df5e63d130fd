"""Both ends of a connection agree here: message limits, keep-alive, and how an address is opened."""

from __future__ import annotations

from dataclasses import dataclass

import grpc.aio

from hetspec.rpc.tls import RpcTls, certificate_name

MESSAGE_LIMIT_BYTES = 64 * 1024 * 1024
"""Bounds the hidden rows of one task: 4096 rows of 4096 float32."""

Option = tuple[str, int | str]

_LIMITS: tuple[Option, ...] = (
    ("grpc.max_send_message_length", MESSAGE_LIMIT_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_LIMIT_BYTES),
)


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """A peer that answers no ping for `timeout_ms`, asked every `time_ms`, counts as dead, frozen or cut off."""

    time_ms: int = 3_000
    timeout_ms: int = 3_000

    def options(self) -> tuple[Option, ...]:
        return (
            ("grpc.keepalive_time_ms", self.time_ms),
            ("grpc.keepalive_timeout_ms", self.timeout_ms),
            ("grpc.http2.ping_timeout_ms", self.timeout_ms),  # a minute by default, whatever the line above says
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
        )


def server_options(keep_alive: KeepAlive) -> tuple[Option, ...]:
    """A taken port is an error, not shared; any rate of pings is welcome, so no client is sent off for too many."""
    return (
        *_LIMITS,
        *keep_alive.options(),
        ("grpc.so_reuseport", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 0),
        ("grpc.http2.max_ping_strikes", 0),
    )


def channel_options(keep_alive: KeepAlive | None = None) -> tuple[Option, ...]:
    """For a connection of its own, not shared with others of the process; reconnects at once, its owner backs off."""
    return (
        *_LIMITS,
        *(keep_alive or KeepAlive()).options(),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.min_reconnect_backoff_ms", 500),
        ("grpc.max_reconnect_backoff_ms", 500),
    )


def open_channel(
    address: str, keep_alive: KeepAlive | None = None, *, peer: str = "localhost", tls: RpcTls | None = None
) -> grpc.aio.Channel:
    """A connection to `address` (host:port). With `tls`, its certificate must be the service `peer`'s."""
    if tls is None:
        return grpc.aio.insecure_channel(address, options=channel_options(keep_alive))
    options = (*channel_options(keep_alive), _expect(peer))
    return grpc.aio.secure_channel(address, tls.channel_credentials(), options=options)


def open_blocking_channel(address: str, *, peer: str = "localhost", tls: RpcTls | None = None) -> grpc.Channel:
    """The same for threads."""
    if tls is None:
        return grpc.insecure_channel(address, options=channel_options())
    return grpc.secure_channel(address, tls.channel_credentials(), options=(*channel_options(), _expect(peer)))


def _expect(peer: str) -> Option:
    return ("grpc.ssl_target_name_override", certificate_name(peer))
