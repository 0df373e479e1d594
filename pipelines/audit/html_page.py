"""One self-contained HTML page: no script, no address, nothing fetched; every text shown for what it is.

Text from logs is hostile: it may hold tags, quotes, or characters that hide or reorder what follows. `shown` escapes
the first kind and writes the second as visible codes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Final

# Control characters but LF and TAB, marks and overrides of direction, invisible ones, line and paragraph separators,
# tags and variation selectors, private use: whatever lets a text look like another one.
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\ue000-\uf8ff\U000e0000-\U000e0fff]"
)
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
STYLE: Final = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1f24; max-width: 74rem; margin: 2rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
p.lead { color: #57606a; margin: .25rem 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0; table-layout: fixed; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid #d8dee4;
  overflow-wrap: anywhere; }
th { font-weight: 600; color: #57606a; font-size: .85rem; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
code, pre { font: 13px/1.45 ui-monospace, monospace; } pre { background: #f6f8fa; padding: .75rem; overflow-x: auto;
  white-space: pre-wrap; overflow-wrap: anywhere; border-radius: 6px; margin: .25rem 0; }
.badge { display: inline-block; padding: 0 .5rem; border-radius: 1rem; font-size: .85rem; white-space: nowrap; }
.pass { background: #dafbe1; color: #116329; } .findings { background: #ffebe9; color: #a40e26; }
.none { background: #eaeef2; color: #57606a; } .warn { background: #fff8c5; color: #7d4e00; }
.note { border-left: 4px solid #d4a72c; background: #fff8c5; padding: .5rem .9rem; margin: 1rem 0; }
.hidden-char { background: #ffd8b5; color: #7d2d00; border-radius: 3px; padding: 0 .15rem; }
details { margin: .4rem 0; } summary { cursor: pointer; color: #0550ae; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: .5rem 0; }
dt { color: #57606a; } dd { margin: 0; overflow-wrap: anywhere; }
"""


def shown(value: object) -> str:
    """Return any value as safe HTML text; None as an empty text."""
    if value is None:
        return ""
    parts: list[str] = []
    last = 0
    text = str(value)
    for match in _HIDDEN.finditer(text):
        code = f"\\u{{{ord(match.group()):04x}}}"
        parts += [html.escape(text[last : match.start()]), f'<span class="hidden-char">{code}</span>']
        last = match.end()
    return "".join([*parts, html.escape(text[last:])])


def code(value: object) -> str:
    return f"<code>{shown(value)}</code>" if value not in (None, "") else ""


def block(text: object) -> str:
    return f"<pre>{shown(text)}</pre>"


def badge(text: str, kind: str) -> str:
    return f'<span class="badge {shown(kind)}">{shown(text)}</span>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a list of terms; values are HTML already."""
    return "<dl>" + "".join(f"<dt>{shown(name)}</dt><dd>{value}</dd>" for name, value in pairs) + "</dl>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], widths: Sequence[str] = ()) -> str:
    """Return a table; cells are HTML already. `widths` are CSS widths of the columns."""
    columns = "".join(f'<col style="width:{shown(width)}">' for width in widths)
    top = "".join(f"<th>{shown(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f"<table><colgroup>{columns}</colgroup><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table>"


def details(summary: str, inside: str, *, is_open: bool = False) -> str:
    """Return a part that folds away; both texts are HTML already."""
    return f"<details{' open' if is_open else ''}><summary>{summary}</summary>{inside}</details>"


def page(title: str, body: str) -> str:
    """Return the whole document."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{shown(title)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )
