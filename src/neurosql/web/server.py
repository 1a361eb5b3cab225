"""The server: each endpoint takes values out of a request, calls `app.explorer`, and packs the answer."""

from __future__ import annotations

import asyncio
import functools
import importlib.resources
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from neurosql.app import explorer
from neurosql.app.explorer.landing import MOST_BYTES
from neurosql.app.explorer.making import MOST_CODES
from neurosql.app.explorer.opened import Opened, Shown
from neurosql.errors import InputError
from neurosql.settings import Sampling
from neurosql.web import wire
from neurosql.web.guard import Guard, Rules

MOST_JSON = 2**22
MOST_WAITING = 256
"""Requests that may wait for the model; more are told to come back."""
MOST_NEIGHBOURS = 64
MOST_SAMPLES = 256
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
T = TypeVar("T")


class Explorer:
    """Some runs, and two threads for them: one for what must be quick, such as the image under the pointer, and one
    for what takes long. Memory stays that of two threads, however many ask."""

    def __init__(self, runs: Sequence[Opened]) -> None:
        self.runs = list(runs)
        self.quick = ThreadPoolExecutor(1, "explorer-quick")
        self.slow = ThreadPoolExecutor(1, "explorer-slow")
        self.waiting = 0

    async def do(self, pool: ThreadPoolExecutor, function: Callable[..., T], *arguments: Any) -> T:
        """The value of a function, called by the thread of a pool."""
        if self.waiting >= MOST_WAITING:
            raise HTTPException(503, "Too many requests are waiting: try again in a moment.")
        self.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, functools.partial(function, *arguments))
        finally:
            self.waiting -= 1

    def run(self, request: Request) -> Opened:
        """The run that a request is about."""
        number = request.path_params["run"]
        if not 0 <= number < len(self.runs):
            raise HTTPException(404, f"There is no run number {number}.")
        return self.runs[number]

    def read_ahead(self) -> None:
        """Begin to read the images of the first run, which the page will ask for."""
        if self.runs:
            self.slow.submit(self.runs[0].images)

    def close(self) -> None:
        """End the threads, once they are done with what they do."""
        for pool in (self.quick, self.slow):
            pool.shutdown(wait=False, cancel_futures=True)


def application(runs: Sequence[Opened], rules: Rules) -> Guard:
    """The application that serves some runs and the page, and nothing else, to whom the rules allow it."""
    here = Explorer(runs)
    here.read_ahead()
    pages = static()

    async def file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in pages:
            raise HTTPException(404, f"There is no file {name[:80]!r}.")
        return Response(pages[name], media_type=TYPES[name[name.rindex(".") :]])

    async def listed(request: Request) -> Response:
        return JSONResponse({"runs": [opened.name for opened in here.runs]})

    def route(path: str, endpoint: Callable[[Explorer, Opened, Request], Awaitable[Response]], method: str) -> Route:
        async def answer(request: Request) -> Response:
            return await endpoint(here, here.run(request), request)

        return Route(f"/api/runs/{{run:int}}{path}", answer, methods=[method])

    routes = [
        Route("/", file),
        Route("/api/runs", listed),
        route("", _describe, "GET"),
        route("/points", _points, "GET"),
        route("/progress", _progress, "GET"),
        route("/decode", _decode, "POST"),
        route("/images", _images, "POST"),
        route("/neighbours", _neighbours, "POST"),
        route("/sample", _sample, "POST"),
        route("/reach", _reach, "POST"),
        route("/locate", _locate, "POST"),
        Route("/{name}", file),
    ]
    handlers: dict[Any, Any] = {
        InputError: _said(400),
        HTTPException: _http,
        ClientDisconnect: _said(400),
        Exception: _unexpected,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    app.state.explorer = here
    return Guard(app, rules)


@functools.cache
def static() -> dict[str, bytes]:
    """The files of the page, by name. Nothing else of the disk can be asked for."""
    folder = importlib.resources.files("neurosql.web") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.endswith(tuple(TYPES))}


def _said(status: int) -> Callable[[Request, Exception], JSONResponse]:
    return lambda request, error: JSONResponse({"error": str(error) or type(error).__name__}, status)


def _http(request: Request, error: HTTPException) -> JSONResponse:
    return JSONResponse({"error": error.detail}, error.status_code)


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    traceback.print_exception(error, file=sys.stderr)
    return JSONResponse({"error": "Something went wrong: the terminal says more."}, 500)


async def _body(request: Request, most: int) -> bytes:
    """The body of a request; what is longer is refused before it is read."""
    said = request.headers.get("content-length", "0")
    if not said.isdecimal() or int(said) > most:
        raise HTTPException(413, f"At most {most >> 20} MiB are taken.")
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > most:
            raise HTTPException(413, f"At most {most >> 20} MiB are taken.")
    return bytes(content)


async def _asked(request: Request) -> dict[str, Any]:
    return wire.asked(await _body(request, MOST_JSON))


def _packed(plain: dict[str, Any], **arrays: np.ndarray | Shown | None) -> Response:
    named = {name: of.values if isinstance(of, Shown) else of for name, of in arrays.items()}
    return Response(wire.packed(plain, named), media_type="application/octet-stream")


async def _describe(here: Explorer, opened: Opened, request: Request) -> Response:
    return JSONResponse(await here.do(here.quick, explorer.describe, opened))


async def _points(here: Explorer, opened: Opened, request: Request) -> Response:
    arrays, names = await here.do(here.quick, explorer.points, opened)
    return _packed({"names": names}, **arrays)


async def _progress(here: Explorer, opened: Opened, request: Request) -> Response:
    return JSONResponse(await here.do(here.quick, explorer.progress, opened))


async def _decode(here: Explorer, opened: Opened, request: Request) -> Response:
    found = await _asked(request)
    codes = wire.numbers(found, "codes", opened.run.settings.generator.dim)
    labels = wire.indices(found, "labels", max(1, opened.run.method.classes or 0))
    if labels is not None and len(labels) != len(codes):
        raise InputError(f"there are {len(codes)} codes, but {len(labels)} labels")
    return _packed({}, samples=await here.do(here.quick, explorer.decode, opened, codes, labels))


async def _images(here: Explorer, opened: Opened, request: Request) -> Response:
    found = await _asked(request)
    indices = wire.indices(found, "indices", max(1, len(opened.run.index)))
    if indices is None:
        raise InputError("indices are missing")
    side = wire.maybe_whole(found, "side", 1, 4096)
    pool = here.quick if opened.images_if_read is not None else here.slow
    return _packed({}, samples=await here.do(pool, explorer.images, opened, indices, side))


async def _neighbours(here: Explorer, opened: Opened, request: Request) -> Response:
    found = await _asked(request)
    index = wire.whole(found, "index", 0, max(0, len(opened.run.index) - 1))
    count = wire.whole(found, "count", 1, MOST_NEIGHBOURS, 8)
    places, losses = await here.do(here.slow, explorer.neighbours, opened, index, count)
    return JSONResponse({"indices": places.tolist(), "losses": [round(float(loss), 6) for loss in losses]})


async def _sample(here: Explorer, opened: Opened, request: Request) -> Response:
    found = await _asked(request)
    sampler, fraction = found.get("sampler"), found.get("fraction")
    if sampler is not None and not isinstance(sampler, str):
        raise InputError("sampler must be a name")
    if fraction is not None and (isinstance(fraction, bool) or not isinstance(fraction, (int, float))):
        raise InputError("fraction must be a number")
    how = Sampling(sampler, fraction=None if fraction is None else float(fraction))
    count, seed = wire.whole(found, "count", 1, MOST_SAMPLES, 24), wire.whole(found, "seed", 0, 2**53, 0)
    label = wire.maybe_whole(found, "label", 0, 2**31)
    drawn = await here.do(here.slow, explorer.sample, opened, count, seed, how, label)
    flags = None if drawn.suspicious is None else drawn.suspicious.astype(np.uint8)
    arrays = {"samples": drawn.samples, "codes": drawn.codes, "labels": drawn.labels, "suspicious": flags}
    return _packed({"verdict": drawn.verdict}, nearest=drawn.nearest, losses=drawn.losses, **arrays)


async def _reach(here: Explorer, opened: Opened, request: Request) -> Response:
    found = await _asked(request)
    codes = wire.numbers(found, "codes", opened.run.settings.generator.dim)
    if len(codes) > 16 * MOST_CODES:
        raise InputError(f"at most {16 * MOST_CODES:,} codes are taken at a time")
    return _packed({}, reached=(await here.do(here.quick, explorer.reach, opened, codes)).astype(np.uint8))


async def _locate(here: Explorer, opened: Opened, request: Request) -> Response:
    content = await _body(request, MOST_BYTES)
    landed = await here.do(here.slow, explorer.locate, opened, content)
    plain = {"label": landed.label, "loss": landed.loss, "known": landed.known, "notes": landed.notes}
    plain["nearest"] = landed.nearest.tolist()
    return _packed(plain, samples=landed.sample, remade=landed.remade, code=landed.code.astype(np.float32))
