"""The viewer's web server (viser), reachable only from this machine by default."""

from __future__ import annotations

import io
import ipaddress
import re
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stdout
from functools import partial
from typing import Any

from mimex.extras import optional_import

PORTS_TRIED = 100
"""Number of consecutive ports to try."""

LOCAL_PAGE = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
"""Origin of the viewer's own page, also through an SSH tunnel."""


def require_viser() -> Any:
    """Imports viser, or raises an error that names the missing extra."""
    with optional_import("the viewer"):
        import viser
    return viser


def free_port(host: str, port: int) -> int:
    """Returns the first free port at ``host``, starting at ``port``.

    viser also searches, but hangs if the address does not belong to this machine.
    """
    if not 0 < port < 1 << 16:
        raise ValueError(f"--port is {port}, but must be between 1 and 65535")
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with closing(socket.socket(family, socket.SOCK_STREAM)) as trial:
            trial.bind((host, 0, *address[2:]))
    except OSError as error:
        raise ValueError(
            f"--host is {host!r}, which is not an address of this machine ({error.strerror}): use "
            "127.0.0.1 for this machine only, or 0.0.0.0 for all networks"
        ) from error
    last = min(port + PORTS_TRIED, 1 << 16)
    for candidate in range(port, last):
        with closing(socket.socket(family, socket.SOCK_STREAM)) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((host, candidate, *address[2:]))
            except OSError:
                continue
            return candidate
    raise ValueError(f"--port is {port}, but all ports up to {last - 1} are in use: choose another")


def open_server(host: str, port: int) -> Any:
    """Starts viser's server (``viser.ViserServer``) at the first free port."""
    viser = require_viser()
    banner = redirect_stdout(io.StringIO())  # suppressed; the command prints the address
    with banner, _refusing_other_sites(host):
        server = viser.ViserServer(host=host, port=free_port(host, port), verbose=False)
    # Any connected page may request that viser publishes the server through a tunnel.
    server.request_share_url = _refuse_to_share
    server.gui.configure_theme(show_share_button=False, show_logo=False)
    return server


@contextmanager
def _refusing_other_sites(host: str) -> Iterator[None]:
    """Makes a server on a loopback address, when it starts, refuse pages of other web sites.

    Browsers let every page connect to a WebSocket on this machine. viser does not look where a page
    comes from; the library that it uses can.
    """
    from websockets.asyncio import server as websockets_server

    server: Any = websockets_server
    original = server.serve
    if _is_loopback(host):
        server.serve = partial(original, origins=[LOCAL_PAGE, None])  # None: not a browser
    try:
        yield
    finally:
        server.serve = original


def _is_loopback(host: str) -> bool:
    address = socket.getaddrinfo(host, None)[0][4][0]
    return ipaddress.ip_address(str(address).partition("%")[0]).is_loopback


def _refuse_to_share(verbose: bool = True) -> None:
    return None


def close_server(server: Any) -> None:
    """Stops the server and ends its threads."""
    with redirect_stdout(io.StringIO()):
        server.stop()
