"""The explorer inside a notebook."""

from __future__ import annotations

import atexit
from html import escape
from pathlib import Path

from neurosql.app.explorer import Opened
from neurosql.errors import InputError, whole


class Shown:
    """An explorer that runs in a thread of this process until `stop`; a notebook shows its page inline.

    `url` is where the page is.
    """

    def __init__(self, runs: list[Opened], height: int) -> None:
        try:
            from neurosql.web.serving import Serving
        except ImportError:
            raise InputError("explore needs Starlette and uvicorn: pip install 'neurosql-torch[web]'") from None
        self.height = whole("height", height, 100)
        self._serving = Serving(runs, framed=True)
        self._thread = self._serving.start()
        self.url = self._serving.url
        atexit.register(self.stop)

    def stop(self) -> None:
        """End the server. The page no longer answers."""
        atexit.unregister(self.stop)
        self._serving.stop(self._thread)

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{self.height}px;border:1px solid #8888"
        return f'<iframe src="{escape(self.url)}" style="{style}" title="neurosql explorer"></iframe>'

    def __repr__(self) -> str:
        return f"<the explorer at {self.url}>"


def explore(*runs: str | Path, data: str | None = None, height: int = 720) -> Shown:
    """Show the maps of one or several run folders, inline in a notebook that runs on this machine.

    `data` is where the training images are, if they have moved, and `height` that of the frame in pixels. The server
    listens on loopback only. It ends with the process, or with `stop()` of what this returns.
    """
    if not runs:
        raise InputError("say which run to explore: give its folder")
    if data is not None and len(runs) > 1:
        raise InputError("data is for one run: leave it out, or explore one run at a time")
    return Shown([Opened(path, data) for path in runs], height)
