"""Check the built site: `python docs/check_site.py build/site` after `mkdocs build`. It exits with 1 if it finds fault.

Every link and anchor within the site must resolve, nothing may be loaded from elsewhere, each page has one first-level
heading and skips no level, and every picture has an alternative text.
"""

from __future__ import annotations

import posixpath
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("link", "href"), ("script", "src"), ("img", "src"), ("source", "src"), ("iframe", "src"), ("image", "href")}
ADDRESSES = {"canonical", "next", "prev", "alternate", "edit"}
"""Kinds of <link> that say where something is, without loading it."""


class Page(HTMLParser):
    """What a page links to, what it loads, its anchors, headings and faults of its pictures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.levels: list[int] = []
        self.without_text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors.update(found[name] for name in ("id", "name") if name in found)
        for name in ("href", "src"):
            if name not in found:
                continue
            if tag == "a":
                self.links.append(found[name])
            elif (tag, name) in LOADED and found.get("rel") not in ADDRESSES:
                self.loads.append(found[name])
        if re.fullmatch(r"h[1-6]", tag):
            self.levels.append(int(tag[1]))
        if tag == "img" and not found.get("alt", "").strip():
            self.without_text.append(found.get("src", "?"))


def faults_of(name: str, pages: dict[str, Page], files: set[str]) -> list[str]:
    """What is wrong with a page of the site."""
    page = pages[name]
    faults = [f"a picture without alternative text: {source}" for source in page.without_text]
    faults += [f"loads {target} from elsewhere" for target in page.loads if urlsplit(target).netloc]
    for target in dict.fromkeys([*page.links, *page.loads]):
        parts = urlsplit(target)
        if parts.scheme or parts.netloc or target.startswith("/"):
            if not parts.netloc and parts.scheme not in {"mailto", "data", "javascript"}:
                faults.append(f"a link from the root of the server: {target}")
            continue
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path))) if parts.path else name
        if path in {".", ""} or target.endswith("/"):
            path = posixpath.join(path, "index.html").removeprefix("./")
        if path not in files:
            faults.append(f"a link to nothing: {target}")
        elif parts.fragment and path in pages and unquote(parts.fragment) not in pages[path].anchors:
            faults.append(f"no such anchor: {target}")
    if page.levels.count(1) != 1:
        faults.append(f"{page.levels.count(1)} headings of the first level")
    faults += [f"a heading of level {b} after level {a}" for a, b in zip(page.levels, page.levels[1:]) if b > a + 1]
    return faults


def styles(folder: Path) -> list[str]:
    """Style sheets that load something from elsewhere."""
    loads = re.compile(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//")
    found = sorted(folder.rglob("*.css"))
    return [
        f"{path.relative_to(folder)} loads from elsewhere" for path in found if loads.search(path.read_text("utf-8"))
    ]


def main() -> int:
    """Print all faults."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/site")
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    # A server shows the page 404.html at any address, so its links begin at the root.
    names = sorted(name for name in files if name.endswith(".html") and name != "404.html")
    pages = {name: Page((folder / name).read_text("utf-8")) for name in names}
    faults = [f"{name}: {fault}" for name in pages for fault in faults_of(name, pages, files)] + styles(folder)
    print("\n".join(faults) or f"{len(pages)} pages: all links, headings and pictures are in order")
    return 1 if faults or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
