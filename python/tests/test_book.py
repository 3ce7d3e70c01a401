"""The Python code of the book's page on operators in Python runs as it is printed, one block after the other."""

import importlib.util
import pathlib
import re

import fulgurite

PAGE = pathlib.Path(__file__).parents[2] / "docs/src/python_operators.md"


def test_the_page_on_operators_runs():
    text = PAGE.read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    names: dict = {"__name__": "book"}
    try:
        for block in blocks:
            if "import torch\n" in block and importlib.util.find_spec("torch") is None:
                continue
            # Lines keep their numbers, so that errors name those of the page.
            before = text[: text.index(block)].count("\n")
            exec(compile("\n" * before + block, str(PAGE), "exec"), names)
        assert [mark.name for mark in names["test_operators"].pytestmark] == ["parametrize"]
    finally:
        for name in ("ex", "softcap", "squareplus"):
            if name in names:
                names[name].withdraw()
    assert "mine::squareplus" not in fulgurite.ops.OPERATORS
