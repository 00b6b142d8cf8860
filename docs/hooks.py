"""Hooks of mkdocs: the pages that are written from the program, and the map of the packages in architecture.md."""

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from reference_pages import api, configuration, papers  # noqa: E402
from reference_pages.packages import packages  # noqa: E402

_MAP = "<!-- the map of the packages -->"
_FROM_NETWORK = "https://unpkg.com/iframe-worker/shim"
"""What the theme would load for searching pages that are opened from a file; ours does the same."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts a page for each package into the navigation."""
    pages = ["api/index.md", *({package.name: api.path_of(package)} for package in packages())]
    _replace(config.nav, "api/", pages)
    return config


def _replace(nav: list, name: str, pages: list) -> None:
    for entry in nav:
        for title, inner in entry.items() if isinstance(entry, dict) else ():
            if inner == name:
                entry[title] = pages
            elif isinstance(inner, list):
                _replace(inner, name, pages)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are written from the program."""
    found = packages()
    made = {
        "configuration.md": configuration.page(),
        "papers.md": papers.page(),
        "api/index.md": api.index(found),
        **{api.path_of(package): api.page(package) for package in found},
    }
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fills in the map of the packages."""
    return markdown.replace(_MAP, api.summaries(packages(), "api/")) if _MAP in markdown else markdown


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Lets a page search without a network."""
    return _without_network(output, "../" * page.file.dest_uri.count("/"))


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """Lets the page for missing pages search, too."""
    return _without_network(output, "/")


def _without_network(output: str, top: str) -> str:
    return output.replace(_FROM_NETWORK, f"{top}assets/iframe_worker.js")
