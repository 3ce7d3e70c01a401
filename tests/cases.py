"""Call files of `fulgurite ops run`, as the comparisons with others' results share them: signatures, runs, lists of known cases."""

import collections
import json
import re
import subprocess
import sys
from pathlib import Path


def split_top(text):
    """The parts of `text` between commas that are not within brackets or quotes."""
    parts, depth, quoted, current = [], 0, False, ""
    for c in text:
        if c == '"':
            quoted = not quoted
        if not quoted and c in "([":
            depth += 1
        if not quoted and c in ")]":
            depth -= 1
        if c == "," and depth == 0 and not quoted:
            parts.append(current)
            current = ""
        else:
            current += c
    return parts + [current] if current.strip() else parts


class Parameters:
    """The parameters of an operator, from its signature as `ops list --json` writes it."""

    def __init__(self, signature):
        inside = re.match(r"[^(]*\((.*)\) -> ", signature).group(1)
        self.names, self.types, self.defaults = [], {}, {}
        for part in split_top(inside):
            name, rest = part.split(":", 1)
            kind, *default = (text.strip() for text in rest.split("=", 1))
            self.names.append(name.strip())
            self.types[name.strip()] = kind
            if default:
                self.defaults[name.strip()] = default[0]


def operators(fulgurite):
    """What `ops list --json` says of every operator."""
    return json.loads(subprocess.run([fulgurite, "ops", "list", "--json"], check=True, capture_output=True).stdout)


def run(fulgurite, folder, executors=None):
    """What `ops run` says of the cases in a folder, by their names. Their results are in the folder `out` there."""
    command = [fulgurite, "ops", "run", str(folder), "--out", str(Path(folder) / "out")]
    if executors:
        command += ["--executors", executors]
    ran = subprocess.run(command, capture_output=True, text=True)
    results = Path(folder) / "out" / "results.json"
    if not results.exists():
        sys.exit(f"`ops run` left no results: {ran.stderr[-2000:]}")
    return {report["id"]: report for report in json.loads(results.read_text())}


def counted(text):
    """Lines of a table of Markdown from rows of texts."""
    return "\n".join("| " + " | ".join(str(cell) for cell in row) + " |" for row in text)


def unlike(known, found):
    """Where two maps of names to reasons differ: what is new, and what is known and no longer so."""
    new = [f"not known: {name}: {why}" for name, why in sorted(found.items()) if name not in known]
    gone = [f"known, and no longer so: {name}: {why}" for name, why in sorted(known.items()) if name not in found]
    other = [f"for another reason: {n}: {found[n]} (known: {known[n]})" for n in sorted(known.keys() & found.keys()) if known[n] != found[n]]
    return new + gone + other


def by_reason(reasons):
    """Names by their reasons, as lists keep them."""
    groups = collections.defaultdict(list)
    for name, why in sorted(reasons.items()):
        groups[why].append(name)
    return dict(sorted(groups.items()))
