"""Probe a Spark address before Spark's own clients use it, because these try for minutes and then name no cause."""

import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from firnlake.errors import UnavailableError
from firnlake.progress import Progress

T = TypeVar("T")

CONNECT = "sc://"
STANDALONE = "spark://"
ANSWER_SECONDS = 10
"""Seconds within which a host has to accept a connection, and a Spark Connect server to answer."""
_PORTS = {CONNECT: 15002, STANDALONE: 7077}


def within(seconds: int, title: str, start: Callable[[], T]) -> T:
    """Call ``start`` in a thread and return its result. If it takes long, progress is shown as ``title``.

    Raises UnavailableError after ``seconds``. What ``start`` waits for can't be interrupted, so its thread is left
    behind; it does not keep this process from ending.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(start())
        except BaseException as error:  # noqa: BLE001  # raised where the result is awaited
            future.set_exception(error)

    threading.Thread(target=run, name="firn starts Spark", daemon=True).start()
    with Progress(title, 1, lambda: None):
        try:
            return future.result(seconds)
        except TimeoutError:
            if future.done():
                raise
            raise UnavailableError(f"not ready after {seconds} s") from None


def is_local(address: str) -> bool:
    """True if ``address`` is Spark's local mode, without executors of their own as even ``local-cluster`` has them."""
    return address.partition("[")[0] == "local"


def shown(address: str) -> str:
    """``address`` without its parameters, which may hold a token."""
    return address.partition(";")[0].rstrip("/")


def obstacle(address: str) -> str | None:
    """The reason why Spark does not answer at ``address``; None if it does, or if Spark alone can tell.

    Firn looks at addresses of Spark Connect servers and of standalone masters, of which one has to answer.
    """
    kind = next((kind for kind in _PORTS if address.startswith(kind)), None)
    if kind is None:
        return None
    places = shown(address).removeprefix(kind).split(",")
    found = [_unreachable(f"//{place}", _PORTS[kind]) for place in places]
    if None not in found:
        return found[0]
    return _no_connect_server(address) if kind == CONNECT else None


def _unreachable(place: str, port: int) -> str | None:
    """The reason why a connection to ``place`` can't be opened; None if it can, or if a proxy has to open it."""
    try:
        parts = urlsplit(place)
        host, port = parts.hostname or "", parts.port or port
    except ValueError:
        return None  # Spark says what is wrong with it
    if {"grpc", "https", "http"} & getproxies().keys() and not proxy_bypass(host):
        return None
    try:
        socket.create_connection((host, port), ANSWER_SECONDS).close()
    except socket.gaierror as error:
        return f"no such host ({error.strerror})"
    except ConnectionRefusedError:
        return "nothing listens there"
    except TimeoutError:
        return f"no answer within {ANSWER_SECONDS} s"
    except OSError as error:
        return str(error.strerror or error)
    return None


def _no_connect_server(address: str) -> str | None:
    import grpc  # type: ignore[import-untyped]  # it has no types
    from pyspark.sql.connect.client import DefaultChannelBuilder

    channel = DefaultChannelBuilder(address).toChannel()
    try:
        grpc.channel_ready_future(channel).result(ANSWER_SECONDS)
    except grpc.FutureTimeoutError:
        return "no Spark Connect server answers there"
    finally:
        channel.close()
    return None
