"""What the site makes of the repository's pages: mkdocs calls the functions `on_...` (see mkdocs.yml).

Pages link to each other by their places in the repository, so that they can be read there. The site has the pages of
docs/ at its root, and beside them the pages and pictures of the rest of the repository that they link to, directly or
through each other. A link to a folder of tables leads to a list of them. Other files are named, not linked, unless
mkdocs.yml says where the sources can be read.
"""

from __future__ import annotations

import inspect
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

ROOT = Path(__file__).parent.parent
DOCS = "docs/"
ARGUMENTS = (
    "None, the default of most arguments, takes the value of the preset. The flags of `neurosql train` have the same "
    "names, with hyphens."
)
SHOWN = (".md", ".png")
CODE = re.compile(
    r"^(?P<fence> *(?:```+|~~~+)).*?^(?P=fence) *$|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)", re.M | re.S
)
COMMENT = re.compile(r"<!--.*?-->", re.S)
LINK = re.compile(r"(?P<picture>!?)\[(?P<text>(?:\\.|[^\]\\])*)\]\((?P<target>[^()\s]+)\)")
"""A link or a picture; what is in backticks between the brackets belongs to its text."""
HEADING = re.compile(r"^(?P<marks>#{1,6}) +(?P<text>.+?)(?: +#+)?$", re.M)


def without_code(text: str) -> str:
    """A page without blocks of code, and with spaces where code stands in a line, so that positions stay."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    return CODE.sub(blank, text)


def links(text: str) -> Iterator[re.Match[str]]:
    """The links and pictures of a page, those within code left out."""
    for match in LINK.finditer(without_code(text)):
        yield LINK.match(text, match.start()) or match


def headings(text: str) -> list[tuple[int, str]]:
    """(level, text) of each heading of a page."""
    bare = without_code(text)
    return [(len(match["marks"]), text[match.start("text") : match.end("text")]) for match in HEADING.finditer(bare)]


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as forges and the site make them."""
    found: dict[str, int] = {}
    for _, heading in headings(text):
        words = re.sub(r"[`*]|\]\([^)]*\)|!?\[", "", heading).strip().lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found[name] = found.get(name, -1) + 1
        if found[name]:
            found[f"{name}-{found[name]}"] = 0
    return set(found)


def local(target: str) -> bool:
    """Whether a link leads to a file of the repository."""
    return not re.match(r"[a-z][a-z0-9+.-]*:|#|/", target)


def place(page: str, target: str) -> str:
    """The path of a link's file, from the page's and from what the link says; both in the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(target.partition("#")[0])))


def site_place(path: str) -> str:
    """Where the site has a file of the repository."""
    return path.removeprefix(DOCS)


def in_repository(uri: str) -> str:
    """The file of the repository that the site has at a place."""
    return DOCS + uri if (ROOT / DOCS / uri).exists() else uri


def listed(folder: str) -> list[str]:
    """The pages in a folder, sorted."""
    return sorted(path.name for path in (ROOT / folder).glob("*.md"))


def reached(outside: Iterable[str] = ("README.md",)) -> tuple[set[str], set[str]]:
    """Files, and folders with pages, outside docs/ that its pages and the given ones show or link to; with these."""
    files, folders = set(outside), set()
    waiting = [*files, *(path.relative_to(ROOT).as_posix() for path in (ROOT / DOCS).rglob("*.md"))]
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        for link in links((ROOT / page).read_text("utf-8")):
            path = place(page, link["target"])
            if not local(link["target"]) or path.startswith(("..", DOCS)) or path in seen:
                continue
            seen.add(path)
            if (ROOT / path).is_dir() and listed(path):
                folders.add(path)
                pages = [f"{path}/{name}" for name in listed(path)]
                files.update(pages)
                waiting += [page for page in pages if page not in seen]
                seen.update(pages)
            elif path.endswith(SHOWN) and (ROOT / path).is_file():
                files.add(path)
                if path.endswith(".md"):
                    waiting.append(path)
    return files, folders


def for_site(page: str, text: str, has: Callable[[str], bool], sources: str = "") -> str:
    """A page of the repository as the site shows it: links lead to places on the site, comments are left out."""
    bare, made, end = without_code(text), [], 0
    changes = [(match.start(), match.end(), "") for match in COMMENT.finditer(bare)]
    for link in links(text):
        if not local(link["target"]):
            continue
        path, _, anchor = place(page, link["target"]), *link["target"].partition("#")[1:]
        if (ROOT / path).is_dir():
            path += "/index.md"
        words = link["text"]
        if has(site_place(path)):
            there = posixpath.relpath(site_place(path), posixpath.dirname(site_place(page)) or ".")
            words = f"{link['picture']}[{words}]({there}{'#' + anchor if anchor else ''})"
        elif sources:
            words = f"[{words}]({sources}{path.removesuffix('/index.md')})"
        changes.append((link.start(), link.end(), words))
    for start, stop, words in sorted(changes):
        made += [text[end:start], words]
        end = stop
    return "".join(made) + text[end:]


def named_pages(config: Any) -> list[str]:
    """The pages that the navigation names."""
    return re.findall(r"'([^']+\.md)'", repr(config.nav))


def on_config(config: Any) -> Any:
    """Add pages that the navigation does not name to 'How to', so that no page is left out."""
    named = named_pages(config)
    pages = [path.relative_to(ROOT / DOCS).as_posix() for path in sorted((ROOT / DOCS).rglob("*.md"))]
    how_to = next(section["How to"] for section in config.nav if "How to" in section)
    how_to += [page for page in pages if page not in named]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the files outside docs/ that pages link to, and lists of the pages in folders that they link to."""
    from mkdocs.structure.files import File

    outside = [page for page in named_pages(config) if not (ROOT / DOCS / page).exists() and (ROOT / page).exists()]
    pages, folders = reached(outside)
    for path in sorted(pages):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    for folder in sorted(folders):
        items = "\n".join(f"- [{name.removesuffix('.md')}]({name})" for name in listed(folder))
        title = posixpath.basename(folder).capitalize()
        files.append(File.generated(config, f"{folder}/index.md", content=f"# {title}\n\n{items}\n"))
    files.append(File.generated(config, "reference/arguments.md", content=arguments()))
    return files


def arguments() -> str:
    """The page of the estimator's arguments, from its docstring, which is composed from the settings."""
    from neurosql import NeuroSQL

    text = inspect.getdoc(NeuroSQL) or ""
    section = text.partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    lines = [
        "# Arguments of neurosql.NeuroSQL",
        "",
        ARGUMENTS,
        "",
        "| argument | values | what it does |",
        "| --- | --- | --- |",
    ]
    for entry in re.split(r"\n(?=\S)", section):
        head, _, words = entry.partition("\n")
        name, _, kind = head.partition(" : ")
        said = " ".join(words.split())
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in (f"`{name}`", kind, said)) + " |")
    return "\n".join(lines) + "\n"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn a page's links to the repository into links within the site."""
    path = in_repository(page.file.src_uri)
    if not (ROOT / path).exists():
        return markdown
    sources = config.extra.get("sources", "")
    return for_site(path, markdown, lambda uri: files.get_file_from_path(uri) is not None, sources)
