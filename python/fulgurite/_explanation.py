"""What ``explain`` tells, as text and as a table for notebooks."""

from __future__ import annotations

import collections
import html
import re

#: A table has at most so many rows: a notebook keeps what it shows.
MOST_ROWS = 400

_CLAIMED = re.compile(r"^(?P<name>.*): (?P<operator>\S+) by (?P<executor>\S+)$")
_REFUSED = re.compile(r"^  not (?P<executor>[^:]+): (?P<reason>.*)$")
_GRADIENT = re.compile(r"^gradient of (?P<name>[^:]*): (?P<operator>[^;]*); (?P<rule>.*)$")

_TABLE = "border-collapse: collapse; text-align: left"
_CELL = "text-align: left; padding: 0.1em 0.8em 0.1em 0; vertical-align: top; white-space: normal"


class Explanation(str):
    """Which executor took which line, and why others did not: text, which a notebook shows as a table.

    Attributes
    ----------
    lines : list of (str, str, str, list of (str, str))
        For each line its name, its operator, its executor, and the executors that refused it with their reasons.
    """

    @property
    def lines(self) -> list[tuple[str, str, str, list[tuple[str, str]]]]:
        return self._read()[0]

    def _read(self):
        """Lines with their executors, gradient rules, and what is said besides."""
        claimed: list = []
        gradients: list = []
        others: list = []
        refusals: list | None = None
        for line in self.splitlines():
            refused, gradient, taken = _REFUSED.match(line), _GRADIENT.match(line), _CLAIMED.match(line)
            if refused:
                if refusals is not None:
                    refusals.append((refused["executor"], refused["reason"]))
                else:
                    others.append(line.strip())
            elif gradient:
                refusals = []
                gradients.append((gradient["name"], gradient["operator"], gradient["rule"], refusals))
            elif taken:
                refusals = []
                claimed.append((taken["name"], taken["operator"], taken["executor"], refusals))
            else:
                refusals = None
                if line.strip():
                    others.append(line.strip())
        return claimed, gradients, others

    def _repr_html_(self) -> str:
        claimed, gradients, others = self._read()
        counts = collections.Counter(executor for _, _, executor, _ in claimed)
        counted = ", ".join(f"{count} by {html.escape(name)}" for name, count in counts.most_common())
        parts = [f"<p>{len(claimed)} line{'s' * (len(claimed) != 1)}{': ' * bool(counted)}{counted}</p>"]
        parts += [f"<p>{html.escape(line)}</p>" for line in others]
        if claimed:
            head = ("value", "operator", "executor", "why not others")
            parts.append(f"<details open><summary>lines</summary>{_table(head, claimed)}</details>")
        if gradients:
            head = ("gradient of", "operator", "rule", "why not others")
            parts.append(f"<details><summary>gradients</summary>{_table(head, gradients)}</details>")
        return f"<div>{''.join(parts)}</div>"


def _table(head, rows) -> str:
    """A table that has the colors of the page around it."""

    def row(cells, tag="td"):
        return "<tr>" + "".join(f'<{tag} style="{_CELL}">{cell}</{tag}>' for cell in cells) + "</tr>"

    shown = []
    for *cells, refusals in rows[:MOST_ROWS]:
        reasons = "<br>".join(html.escape(f"{executor}: {reason}") for executor, reason in dict.fromkeys(refusals))
        shown.append(row([*(html.escape(cell) for cell in cells), reasons]))
    if len(rows) > MOST_ROWS:
        more = f"{len(rows) - MOST_ROWS} more: print(explain(...))"
        shown.append(f'<tr><td style="{_CELL}" colspan="{len(head)}">{more}</td></tr>')
    table = f'<table style="{_TABLE}"><thead>{row(head, "th")}</thead><tbody>{"".join(shown)}</tbody></table>'
    # A wide table scrolls, not the page around it.
    return f'<div style="overflow-x: auto; max-height: 32em; overflow-y: auto" tabindex="0">{table}</div>'
