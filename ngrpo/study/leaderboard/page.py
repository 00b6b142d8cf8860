"""The leaderboard as a page that opens without a network, with columns to sort by."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from ngrpo.study.leaderboard.files import read_settings
from ngrpo.study.leaderboard.rows import Cell, Table, levels_table, primary_table, setting_table
from ngrpo.study.plots import write_figure
from ngrpo.study.primary_family import comparisons
from ngrpo.utils.atomic_write import write_text

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem }
:root { color-scheme: light dark }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px }
div { overflow-x: auto }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #8884; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
th button { font: inherit; font-weight: 600; border: 0; background: none; color: inherit; cursor: pointer; padding: 0 }
th[aria-sort=ascending] button::after { content: " \\25b2" }
th[aria-sort=descending] button::after { content: " \\25bc" }
img { max-width: 100% }
"""

_SCRIPT = """
for (const button of document.querySelectorAll("th button")) button.onclick = () => {
  const head = button.parentElement, at = head.cellIndex, body = head.closest("table").tBodies[0];
  const down = head.getAttribute("aria-sort") !== "descending";
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = row => {
    const cell = row.cells[at];
    return "n" in cell.dataset ? Number(cell.dataset.n) : cell.textContent;
  };
  const compare = (a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === "" || y === "") return (x === "") - (y === "");
    const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
    return down ? -order : order;
  };
  body.append(...[...body.rows].sort(compare));
};
"""


def write_leaderboard(folder: Path) -> Path:
    """Makes page, markdown and figures from the files of a leaderboard; returns the page.

    Args:
        folder: that `ngrpo.study.leaderboard.files.publish` wrote to; ``index.html``, ``leaderboard.md`` and a figure
            for each setting are put beside them.
    """
    settings = read_settings(folder)
    tables = [setting_table(results) for results in settings]
    tables += [table for results in settings if (table := levels_table(results)) is not None]
    if found := comparisons(settings):
        tables.insert(0, primary_table(found))
    names = [str(results.study["name"]) for results in settings]
    for results, name in zip(settings, names, strict=True):
        write_figure(results, folder / name / f"{name}.png")
    figures = [f"{name}/{name}.png" for name in names]
    write_text(folder / "index.html", page(tables, figures))
    write_text(folder / "leaderboard.md", markdown(tables))
    return folder / "index.html"


def page(tables: Sequence[Table], figures: Sequence[str]) -> str:
    """Returns the page: nothing in it is fetched but the figures beside it."""
    images = [f'<p><img src="{escape(file)}" alt="{escape(file)}"></p>' for file in figures]
    body = "\n".join([*map(_html, tables), *images])
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>Leaderboard of ngrpo</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{_STYLE}</style>\n<h1>Leaderboard</h1>\n'
        f"<p>Click a head to sort by its column.</p>\n{body}\n<script>{_SCRIPT}</script>\n</html>\n"
    )


def markdown(tables: Sequence[Table]) -> str:
    """Returns the tables as markdown."""
    return "\n\n".join(_markdown(table) for table in tables) + "\n"


def _html(table: Table) -> str:
    heads = "".join(f'<th scope="col"><button>{escape(head)}</button></th>' for head in table.heads)
    rows = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    return (
        f"<h2>{escape(table.title)}</h2>\n<p>{escape(table.note)}</p>\n<div><table>\n<thead><tr>{heads}</tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _cell(cell: Cell) -> str:
    number = "" if cell.number is None else f' data-n="{cell.number!r}"'
    return f"<td{number}>{escape(cell.text)}</td>"


def _markdown(table: Table) -> str:
    lines = [list(table.heads), ["---"] * len(table.heads), *([cell.text for cell in row] for row in table.rows)]
    return "\n".join([f"## {table.title}", "", table.note, "", *(f"| {' | '.join(line)} |" for line in lines)])
