"""What fits the documents into a site: they are written to be read in the repository, and stay so.

Pages outside of docs/ come in under names of their own, and links between all of them lead to where they are now.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from markdown import Extension, Markdown  # type: ignore[import-untyped]
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
OUTSIDE = {
    "README.md": "index.md",
    "README.zh.md": "zh.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "LICENSE": "LICENSE",
    "SECURITY.md": "security.md",
    "THIRD_PARTY.md": "third-party.md",
    "deploy/README.md": "deploy.md",
    "deploy/kubernetes/batch.Dockerfile": "batch.Dockerfile",
    "deploy/kubernetes/batch.yaml": "batch.yaml",
    "deploy/kubernetes/worker.yaml": "worker.yaml",
    "deploy/redis/redis.conf": "redis.conf",
    "samples/README.md": "samples.md",
}
"""Where the repository has a page, or a file that a page leads to, and where the site has it."""
_SOURCES = {name: source for source, name in OUTSIDE.items()}
_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[#)])")


class _TwoSpaces(Extension):  # type: ignore[misc]
    """What belongs to an item of a list is indented by two spaces, as GitHub reads it, and not by four."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.tab_length = 2
        md.build_parser()  # its parts have noted the length already; those of other extensions come later


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Read lists as GitHub does."""
    config.markdown_extensions.insert(0, _TwoSpaces())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take the pages outside of docs/ in."""
    for source, name in OUTSIDE.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between places in the repository into links between places of the site."""
    here = page.file.src_uri
    return _LINK.sub(lambda link: moved(link[1], here), markdown)


def moved(target: str, here: str) -> str:
    """A link of the page that the site has at `here`: from there to the site's place of what it leads to."""
    source = _SOURCES.get(here, f"docs/{here}")
    place = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    name = OUTSIDE.get(place, place.removeprefix("docs/"))
    return posixpath.relpath(name, posixpath.dirname(here) or ".")
