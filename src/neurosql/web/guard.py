"""Who may ask: this machine's own pages, or whoever has the token.

A page of somebody else's, open in the same browser, can send requests to this machine too. Such a request has the wrong
Host (after DNS rebinding), the wrong Origin, or says that it comes from another site.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from starlette.responses import JSONResponse, RedirectResponse

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
TYPES = ("application/json", "application/octet-stream")
"""What a request may send: a browser asks before it sends these to another origin, and is told no."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'; frame-ancestors "
)


@dataclass(frozen=True)
class Rules:
    """Who may ask."""

    port: int
    token: str | None = None
    """What everybody must know; None on loopback, where the name of the host is checked instead."""
    framed: bool = False
    """Whether pages of this machine, such as a notebook, may show the page in a frame."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that may be asked for, without a token."""
        named = tuple(f"{name}:{self.port}" for name in LOOPBACK)
        return (*named, *LOOPBACK) if self.port == 80 else named

    def headers(self) -> dict[str, str]:
        """What every answer says."""
        frames = " ".join(f"http://{name}:*" for name in LOOPBACK[:2]) if self.framed else "'none'"
        return {
            "content-security-policy": POLICY + frames,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-resource-policy": "same-origin",
            "cross-origin-opener-policy": "same-origin",
            "cache-control": "no-store",
        } | ({} if self.framed else {"x-frame-options": "DENY"})


class Guard:
    """Refuses what does not follow the rules, and adds their headers to every answer."""

    def __init__(self, app: App, rules: Rules) -> None:
        self.app, self.rules = app, rules
        self.added = [(name.encode(), value.encode()) for name, value in rules.headers().items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def answer(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self.added]
            await send(message)

        refused = self._refuse(scope)
        await (refused or self.app)(scope, receive, answer)

    def _refuse(self, scope: Scope) -> App | None:
        """The answer to a request that may not be made; None if it may."""
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            key = name.decode("latin-1")
            if key in headers and key in ("host", "origin", "content-type"):
                return _no(400, f"The request has two {key} headers.")
            headers[key] = value.decode("latin-1")
        host = headers.get("host", "")
        if self.rules.token is None and host not in self.rules.hosts:
            return _no(421, f"This server answers for {self.rules.hosts[0]} only.")
        if headers.get("origin", f"http://{host}") != f"http://{host}":
            return _no(403, "Requests of other sites are refused.")
        opens = scope["path"] == "/" and scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not opens:
            return _no(403, "Requests of other sites are refused.")
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return _no(405, "Only GET, HEAD and POST are answered.")
        if scope["method"] == "POST" and headers.get("content-type", "").split(";")[0] not in TYPES:
            return _no(415, f"The content type must be {' or '.join(TYPES)}.")
        return None if self.rules.token is None else self._ask_for_token(scope, headers)

    def _ask_for_token(self, scope: Scope, headers: dict[str, str]) -> App | None:
        name = f"neurosql-{self.rules.port}"
        try:
            kept = SimpleCookie(headers.get("cookie", "")).get(name)
        except CookieError:
            kept = None
        if kept is not None and self._knows(kept.value):
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if not self._knows(given):
            return _no(403, "Open the address that the program printed: it has a token that this one lacks.")
        if scope["path"] != "/":
            return None
        response = RedirectResponse("/", 303)
        response.set_cookie(name, given, httponly=True, samesite="lax")
        return response

    def _knows(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), (self.rules.token or "").encode())


def _no(status: int, words: str) -> JSONResponse:
    return JSONResponse({"error": words}, status)
