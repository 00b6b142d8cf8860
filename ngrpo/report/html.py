"""The templates of the pages, and the scripts and styles that go into them."""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_ASSETS = Path(__file__).parent / "assets"
_PLOTTING = "uplot/uPlot.iife.min.js"
_STYLES = ("uplot/uPlot.min.css", "page.css")


@dataclass(frozen=True)
class Script:
    """An inline script that the page's policy names by its hash, so that no other one runs.

    Attributes:
        text: the source.
    """

    text: str

    @property
    def markup(self) -> Markup:
        """The source as it goes into the page; it is ours, so it is not escaped."""
        return Markup(self.text)

    @property
    def source(self) -> str:
        """How the content security policy names it."""
        digest = base64.b64encode(hashlib.sha256(self.text.encode()).digest()).decode()
        return f"'sha256-{digest}'"


def render(template: str, scripts: tuple[str, ...], **values: Any) -> str:
    """Returns a page.

    All values are escaped, or written as JSON that cannot end its element.

    Args:
        template: its name among the assets.
        scripts: names of the scripts it needs besides the plotting library.
        **values: what the template shows.
    """
    environment = Environment(
        loader=PackageLoader("ngrpo.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment.get_template(template).render(
        style=Markup("\n".join(map(_asset, _STYLES))),
        scripts=[Script(_asset(name)) for name in (_PLOTTING, *scripts)],
        **values,
    )


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
