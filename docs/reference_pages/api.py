"""The API pages: one a package, a section a module; mkdocstrings fills them."""

from reference_pages.markdown import prose, table
from reference_pages.packages import Package

_HEAD = "    options: {members: [], show_root_heading: false, show_root_toc_entry: false}"


def page(package: Package) -> str:
    """Returns the page of a package."""
    sections = [f"::: {module.name}" for module in package.modules]
    return "\n\n".join([f"# {package.name}", f"::: {package.name}\n{_HEAD}", *sections]) + "\n"


def path_of(package: Package) -> str:
    """Returns where the page is."""
    return f"api/{package.name}.md"


def index(packages: list[Package]) -> str:
    """Returns the first API page, which lists the others."""
    return f"# API\n\nA page a package, a section a file.\n\n{summaries(packages, '')}\n"


def summaries(packages: list[Package], base: str) -> str:
    """Returns what each package is, with links to the pages at ``base``."""
    rows = [(_link(package, base), prose(package.summary)) for package in packages]
    return table(("package", "what it is"), rows)


def _link(package: Package, base: str) -> str:
    return f"[`{package.name}`]({base}{path_of(package).removeprefix('api/')})"
