"""The command `explore`: its arguments, and what it says. The server and torch are imported when it runs."""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from neurosql.errors import InputError


@dataclass(frozen=True)
class Explore:
    """Walk on the map of one or several runs, in a browser."""

    runs: tyro.conf.Positional[tuple[str, ...]]
    """Run folders."""
    data: str | None = None
    """Where the training images are, if they have moved."""
    port: int = 0
    """Port to listen on; by default a free one."""
    host: str = "127.0.0.1"
    """Address to listen on. With any other than this machine's own, others can see your data: the printed address has a
    token that they need, and nothing is encrypted."""
    browser: bool = True
    """Open the page in a browser. Otherwise its address is only printed."""

    def __call__(self) -> None:
        if not self.runs:
            raise InputError("say which run to explore: give its folder")
        if self.data is not None and len(self.runs) > 1:
            raise InputError("--data is for one run: leave it out, or explore one run at a time")
        try:
            from neurosql.web import serving
        except ImportError:
            raise InputError("explore needs Starlette and uvicorn: pip install 'neurosql-torch[web]'") from None
        from neurosql.app.explorer import Opened

        found = serving.Serving([Opened(path, self.data) for path in self.runs], self.host, self.port)
        print(f"look at    {found.url}")
        print("stop       Ctrl-C", flush=True)
        found.run((lambda: serving.open_browser(found.url)) if self.browser else (lambda: None))
