"""The notebooks of `examples/notebooks` that are written in Python run cell by cell, as Jupyter would run them."""

import ast
import json
import linecache
import pathlib

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import fulgurite  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "notebooks"
NAMES = ["llama_with_liger", "gpt2_with_llmc"]

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the package is tested without the repository's examples")


def read(name):
    return json.loads((FOLDER / f"{name}.ipynb").read_text())


def expect_valid(notebook):
    """What nbformat's schema asks of a notebook of version 4.5."""
    assert notebook["nbformat"] == 4 and notebook["nbformat_minor"] >= 5
    assert set(notebook) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    identifiers = [cell["id"] for cell in notebook["cells"]]
    assert len(set(identifiers)) == len(identifiers)
    for cell in notebook["cells"]:
        fields = {"cell_type", "id", "metadata", "source"}
        if cell["cell_type"] == "code":
            fields |= {"execution_count", "outputs"}
        assert cell["cell_type"] in ("code", "markdown") and set(cell) == fields, cell["id"]
        assert cell["source"] and all(isinstance(line, str) for line in cell["source"])
        assert all(line.endswith("\n") for line in cell["source"][:-1])


def run(cell, number, namespace):
    """Runs a cell: what its last expression is, as Jupyter would show it, or `None`."""
    source = "".join(cell["source"])
    place = f"<cell {number}>"
    # Errors and traces tell the line.
    linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)
    body = ast.parse(source, place)
    last = body.body.pop() if body.body and isinstance(body.body[-1], ast.Expr) else None
    exec(compile(body, place, "exec"), namespace)
    if last is None:
        return None
    value = eval(compile(ast.Expression(last.value), place, "eval"), namespace)
    show = getattr(value, "_repr_html_", None)
    return show() if show is not None else repr(value)


@pytest.mark.parametrize("name", NAMES)
def test_the_stored_notebook_is_valid_and_has_no_results(name):
    notebook = read(name)
    expect_valid(notebook)
    try:
        import nbformat
    except ImportError:
        pass
    else:
        nbformat.validate(nbformat.from_dict(notebook))
    assert notebook["metadata"]["kernelspec"]["language"] == "python"
    assert all(not cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code")


def test_a_notebook_that_is_not_valid_is_found():
    notebook = read(NAMES[0])
    del notebook["cells"][1]["outputs"]
    with pytest.raises(AssertionError):
        expect_valid(notebook)


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_runs(name):
    torch._dynamo.reset()
    namespace = {"__name__": "__main__"}
    shown = []
    try:
        for number, cell in enumerate(read(name)["cells"]):
            if cell["cell_type"] == "code":
                shown.append(run(cell, number, namespace))
    finally:
        torch.set_default_device(None)
    text = "".join(each for each in shown if each)
    assert "<iframe" in text and "<table" in text, "traces and explanations show themselves"
    assert len(text) < 16 << 20, f"{len(text)} bytes"
    executor = "liger" if name == "llama_with_liger" else "llmc"
    assert f"by {executor}" in text


def test_a_cell_that_fails_is_found():
    with pytest.raises(AssertionError, match="1"):
        run({"source": ["x = 1\n", "assert fulgurite is None, x"]}, 0, {"fulgurite": fulgurite})
    assert run({"source": ["x = 1\n", "x + 1"]}, 0, {}) == "2"
