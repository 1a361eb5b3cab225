"""Serve the explorer until it is stopped: on a free port of this machine, unless told otherwise."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import suppress

import uvicorn

from neurosql.app.explorer.opened import Opened
from neurosql.errors import InputError
from neurosql.web.guard import Rules
from neurosql.web.server import application

LOOPBACK = "127.0.0.1"
PATIENCE = 10.0
"""Seconds that the server may take to begin or to end."""


class Serving:
    """A server that has its port already; `url` is where the page is."""

    def __init__(self, runs: Sequence[Opened], host: str = LOOPBACK, port: int = 0, framed: bool = False) -> None:
        self.socket = _listening(host, port)
        self.port = int(self.socket.getsockname()[1])
        token = None if _is_loopback(host) else secrets.token_urlsafe(24)
        self.rules = Rules(self.port, token, framed)
        shown = f"[{host}]" if ":" in host else socket.gethostname() if host in ("0.0.0.0", "") else host
        self.url = f"http://{shown}:{self.port}/" + ("" if token is None else f"?token={token}")
        self.app = application(runs, self.rules)
        config = uvicorn.Config(
            self.app, log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none"
        )
        self.server = uvicorn.Server(config)

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until Ctrl-C; `ready` is called when the page can be opened."""
        threading.Timer(0.2, ready).start()
        try:
            self.server.run(sockets=[self.socket])
        finally:
            self.close()

    def start(self) -> threading.Thread:
        """Serve in a thread of this process, until `stop`."""
        thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)
        thread.start()
        for _ in range(round(PATIENCE / 0.01)):
            if self.server.started:
                return thread
            thread.join(0.01)
        raise InputError("the server did not start")

    def stop(self, thread: threading.Thread) -> None:
        """End what `start` began."""
        self.server.should_exit = True
        thread.join(PATIENCE)
        self.close()

    def close(self) -> None:
        """Let go of the port and of the threads."""
        self.app.app.state.explorer.close()  # type: ignore[attr-defined]
        self.socket.close()


def open_browser(url: str) -> None:
    """Show a page in the user's browser, if there is one."""
    with suppress(webbrowser.Error):
        webbrowser.open(url)


def _listening(host: str, port: int) -> socket.socket:
    """A socket at an address; port 0 is any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sends at once: it would otherwise wait 40 ms for what may still come.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        # Whoever is quick waits, instead of being refused.
        found.listen(128)
    except (OSError, OverflowError) as error:
        found.close()
        words = getattr(error, "strerror", None) or str(error)
        raise InputError(f"can't listen on {host}, port {port}: {words}") from None
    return found


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
