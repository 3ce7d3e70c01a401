"""Transforms that are written in Python: lines of a trace found and replaced, and what is wrong told in words."""

import math

import numpy as np
import pytest

import fulgurite
from fulgurite import ops, transforms


def array(*shape, seed=0):
    return fulgurite.from_dlpack(np.random.default_rng(seed).standard_normal(shape).astype("float32"))


def acquired(function, *arguments):
    compiled = fulgurite.jit(function)
    compiled(*arguments)
    return fulgurite.last_traces(compiled)["acquire"]


def calls(trace):
    return [line.operator for line in trace.lines]


def rotated(x, y, cos, sin):
    return ops.apply_rope(x, cos, sin), ops.apply_rope(y * 2.0, cos, sin)


ROPE = (array(2, 6, 4, 8), array(2, 2, 4, 8, seed=1), array(4, 8, seed=2), array(4, 8, seed=3))


def merge_rope(trace):
    rewrite, waiting = transforms.Rewrite(trace), {}
    for line in trace.find("apply_rope"):
        tables = line["cos"], line["sin"]
        first = waiting.pop(tables, None)
        if first is None:
            waiting[tables] = line
        else:
            rewrite.replace([first, line], ops.rope, first["input"], line["input"], *tables)
    return rewrite.trace()


def test_lines_have_operators_arguments_results_and_values():
    trace = acquired(lambda x, y: ops.gelu(x, approximate="tanh").softmax(-1) @ ops.cat([x.T, y], 1), array(3, 4),
                     array(4, 2))
    assert calls(trace)[:2] == ["gelu", "softmax"] and calls(trace)[-2:] == ["cat", "matmul"]
    (gelu,), (softmax,), (cat,) = (trace.find(name) for name in ("gelu", "softmax", "cat"))
    assert gelu["approximate"] == "tanh" and gelu.arguments["approximate"] == "tanh"
    x = gelu["input"]
    assert (x.name, x.shape, x.dtype, x.device, x.ndim) == ("x", (3, 4), fulgurite.float32, "cpu", 2)
    assert softmax.operands == gelu.results and softmax["dim"] == -1 and softmax["dtype"] is None
    assert [each.shape for each in cat["tensors"]] == [(4, 3), (4, 2)] and cat.name == cat.results[0].name
    assert gelu.executor is None and gelu.pass_ == "forward" and "gelu(x" in str(gelu)
    assert [value.name for value in trace.inputs] == ["x", "y"] and trace.inputs[0] == x
    assert len({x, *trace.inputs}) == 2 and x != "x" and gelu == trace.find("gelu")[0] != softmax
    ((path, out),) = trace.outputs
    assert path == "result" and out.shape == (3, 5)
    with pytest.raises(KeyError, match="gelu has no parameter 'approx', it has: input, approximate"):
        gelu["approx"]
    with pytest.raises(fulgurite.Error, match="did you mean 'gelu'"):
        trace.find("gelo")


def test_claimed_lines_have_executors():
    compiled = fulgurite.jit(lambda x: ops.softmax(x, -1))
    compiled(array(3, 4))
    last = fulgurite.last_traces(compiled)[-1]
    assert {line.executor for line in last.lines if line.operator.startswith("prims::")} <= {"cpu", "view"}
    regions = last.find("region")
    assert regions and all(each.lines and each.lines[0] in last.lines for each in regions)
    rewrite = transforms.Rewrite(last)
    rewrite.replace(regions[0].lines[0], ops.prims.exp, regions[0].lines[0].operands[0])
    with pytest.raises(fulgurite.Error, match="is in a region, whose lines cannot be replaced"):
        rewrite.trace()


def test_two_lines_become_one():
    compiled, plain = fulgurite.jit(rotated, transforms=[merge_rope]), fulgurite.jit(rotated)
    for found, expected in zip(compiled(*ROPE), plain(*ROPE)):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)
    after = fulgurite.last_traces(compiled)["merge_rope"]
    assert calls(after).count("rope") == 1 and "apply_rope" not in calls(after)
    assert str(after).splitlines()[1] == "# made by acquire, rewrite, merge_rope"


def test_gradients_are_those_of_the_replacement():
    def loss(x, y, cos, sin):
        return sum((each * each * each).sum() for each in rotated(x, y, cos, sin))

    merged = fulgurite.jit(fulgurite.value_and_grad(loss, argnums=(0, 1)), transforms=[merge_rope])
    value, grads = merged(*ROPE)
    expected, expected_grads = fulgurite.value_and_grad(loss, argnums=(0, 1))(*ROPE)
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)
    for found, wanted in zip(grads, expected_grads):
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
    # The lines are inside of `value_and_grad`.
    trace = fulgurite.last_traces(merged)["merge_rope"]
    (outer,) = trace.find("value_and_grad")
    assert "rope" in [line.operator for line in outer.lines] and not trace.find("apply_rope")


def test_what_is_read_before_it_is_computed_is_an_error():
    def used_between(x, y, cos, sin):
        x = ops.apply_rope(x, cos, sin)
        return x, ops.apply_rope(y + x.sum(), cos, sin)

    with pytest.raises(fulgurite.Error, match=r"reads 'apply_rope' before it is computed: what replaces lines"):
        merge_rope(acquired(used_between, *ROPE))
    with pytest.raises(fulgurite.Error, match="before it is computed"):
        fulgurite.jit(used_between, transforms=[merge_rope])(*ROPE)


def one(trace, function, *values, operator="tanh"):
    rewrite = transforms.Rewrite(trace)
    (line,) = trace.find(operator)
    rewrite.replace(line, function, *(values or line.operands))
    return rewrite.trace()


def test_replacements_that_do_not_fit_are_errors():
    trace = acquired(lambda x: ops.tanh(x).exp() + 1.0, array(3, 4))
    (tanh,), (exp,) = trace.find("tanh"), trace.find("exp")
    (x,) = tanh.operands
    with pytest.raises(fulgurite.ArgumentError, match=r"returned f32\[3\] for 'tanh', expected f32\[3, 4\]"):
        one(trace, lambda x: x.sum(1))
    with pytest.raises(fulgurite.ArgumentError, match=r"returned f16\[3, 4\] for 'tanh', expected f32\[3, 4\]"):
        one(trace, lambda x: x.to("float16"))
    with pytest.raises(fulgurite.ArgumentError, match="returned 2 tensors, expected 1 for 'tanh'"):
        one(trace, lambda x: (x, x))
    with pytest.raises(fulgurite.ArgumentError, match="returned NoneType, expected tensors"):
        one(trace, lambda x: None)
    with pytest.raises(fulgurite.ArgumentError, match="reads 'exp', which is computed behind the last line"):
        one(trace, lambda x: x, exp.results[0])
    with pytest.raises(fulgurite.ArgumentError, match="reads 'tanh', which the lines that it replaces compute"):
        one(trace, lambda x: x, tanh.results[0])
    with pytest.raises(ZeroDivisionError):
        one(trace, lambda x: x / (1 // 0))
    with pytest.raises(fulgurite.Error, match="softmax"):
        one(trace, lambda x: ops.softmax(x, 7))
    other = acquired(lambda y, z: ops.tanh(y @ z), array(3, 4), array(4, 5))
    with pytest.raises(fulgurite.ArgumentError, match="is no line of this trace"):
        rewrite = transforms.Rewrite(trace)
        rewrite.replace(other.find("tanh")[0], ops.sin, x)
        rewrite.trace()
    with pytest.raises(fulgurite.ArgumentError, match="is no value of the program of 'tanh'"):
        one(trace, ops.sin, other.inputs[1])
    with pytest.raises(fulgurite.ArgumentError, match="is replaced already"):
        rewrite = transforms.Rewrite(trace)
        rewrite.replace(tanh, ops.sin, x)
        rewrite.replace([tanh, exp], ops.cos, x)
        rewrite.trace()
    for wrong in (lambda: transforms.Rewrite("text"), lambda: transforms.Rewrite(trace).replace("tanh", ops.sin),
                  lambda: transforms.Rewrite(trace).replace(tanh, "sin")):
        with pytest.raises(fulgurite.ArgumentError, match="expected"):
            wrong()


def test_results_that_nobody_else_reads_are_left_out():
    trace = acquired(lambda x, y: ops.silu(x) * y, array(3, 4), array(3, 4, seed=1))
    (silu,), (mul,) = trace.find("silu"), trace.find("mul")
    rewrite = transforms.Rewrite(trace)
    rewrite.replace([mul, silu], ops.swiglu, silu["input"], mul["other"])
    assert calls(rewrite.trace()) == ["swiglu"]

    kept = acquired(lambda x, y: (ops.silu(x), ops.silu(x) * y), array(3, 4), array(3, 4, seed=1))
    silu, mul = kept.find("silu")[1], kept.find("mul")[0]
    read = acquired(lambda x, y: [s := ops.silu(x), s * y], array(3, 4), array(3, 4, seed=1))
    rewrite = transforms.Rewrite(read)
    rewrite.replace([read.find("silu")[0], read.find("mul")[0]], ops.swiglu, *read.inputs)
    with pytest.raises(fulgurite.ArgumentError, match="returned 1 tensors, expected 2 for 'silu', 'mul'"):
        rewrite.trace()
    rewrite = transforms.Rewrite(kept)
    rewrite.replace([silu, mul], ops.swiglu, silu["input"], mul["other"])
    assert sorted(calls(rewrite.trace())) == ["silu", "swiglu"]


def test_several_replacements_at_once_and_one_that_reads_another():
    trace = acquired(lambda x: ops.cos(ops.sin(ops.tanh(x))), array(5))
    rewrite = transforms.Rewrite(trace)
    for name, function in (("cos", ops.sin), ("tanh", ops.exp), ("sin", lambda x: x)):
        (line,) = trace.find(name)
        rewrite.replace(line, function, *line.operands)
    assert [name for name in calls(rewrite.trace())] == ["exp", "sin"]
    assert transforms.Rewrite(trace).trace() is trace


def test_replace_makes_a_transform_of_an_operator():
    by_tanh = transforms.replace("gelu", lambda input, approximate: ops.gelu(input, approximate="tanh"))
    x = array(64)
    compiled = fulgurite.jit(lambda x: ops.gelu(x) + ops.gelu(x * 2.0, approximate="tanh"), transforms=[by_tanh])
    expected = ops.gelu(x, approximate="tanh") + ops.gelu(x * 2.0, approximate="tanh")
    np.testing.assert_allclose(compiled(x).numpy(), expected.numpy(), rtol=1e-6)
    assert "replace_gelu" in [trace.stage for trace in fulgurite.last_traces(compiled)]
    exact = transforms.replace("gelu", lambda input, approximate: ops.gelu(input),
                               where=lambda line: line["approximate"] == "tanh", place="before_autodiff")
    compiled = fulgurite.jit(lambda x: ops.gelu(x, approximate="tanh"), transforms=[exact])
    erf = [0.5 * each * (1 + math.erf(each / math.sqrt(2))) for each in x.tolist()]
    np.testing.assert_allclose(compiled(x).numpy(), erf, rtol=1e-5, atol=1e-6)
    with pytest.raises(fulgurite.Error, match="did you mean"):
        fulgurite.jit(lambda x: x * 2.0, transforms=[transforms.replace("soft_max", ops.softmax)])(x)


def test_one_list_of_executors_serves_several_kinds_of_devices():
    compiled = fulgurite.jit(lambda x, w: ops.rms_norm(x, [64], w), executors=["liger", "default"])
    compiled(array(4, 64), array(64))
    trace, told = fulgurite.last_traces(compiled)[-1], fulgurite.explain(compiled)
    assert "refused" not in str(trace) and told.startswith("executor liger: runs on cuda, this program is for cpu\n")
    elsewhere = fulgurite.last_traces(compiled, "cuda:sm_90a")[-1]
    assert elsewhere.target == "cuda:sm_90a" and [line.operator for line in elsewhere.lines] == ["liger::rms_norm"]
    assert "by liger" in fulgurite.explain(compiled, target="cuda:sm_90a")
    assert "executor liger" not in fulgurite.explain(compiled, "cuda:sm_90a")
    # Nothing of it changed what was compiled.
    assert fulgurite.last_traces(compiled)[-1].target == "cpu" and compiled.compiles == 1
    with pytest.raises(fulgurite.Error, match="none of liger, llmc runs on cpu: name 'default' behind them"):
        fulgurite.jit(lambda x: x * 2.0, executors=["liger", "llmc"])(array(3))
    with pytest.raises(ValueError, match="is not a target, expected 'cpu', 'cuda:sm_90a'"):
        fulgurite.last_traces(compiled, "cuda:sm 90a")
    with pytest.raises(fulgurite.Error, match="lager"):
        fulgurite.jit(lambda x: x * 2.0, executors=["lager"])


def test_backward_programs_for_another_target():
    compiled = fulgurite.jit(lambda x, w: ops.rms_norm(x, [64], w), executors=["liger", "default"])
    value, pullback = fulgurite.vjp(compiled, array(4, 64), array(64))
    pullback(value)
    backward = fulgurite.last_backward_traces(compiled, "cuda:sm_90a")[-1]
    assert any(line.operator.startswith("liger::rms_norm") for line in backward.lines)
    assert [path for path, _ in backward.outputs] == [path for path, _ in
                                                      fulgurite.last_backward_traces(compiled)[-1].outputs]


def test_explanations_are_tables_in_notebooks():
    compiled = fulgurite.jit(lambda x: ops.softmax(x, -1) @ x.T, executors=["liger", "default"])
    compiled(array(3, 4))
    told = fulgurite.explain(compiled, "cuda:sm_90a")
    assert isinstance(told, str) and ("softmax" in told)
    assert all(executor for _, _, executor, _ in told.lines) and len(told.lines) == told.count(" by ")
    html = told._repr_html_()
    assert html.count("<tr>") == len(told.lines) + 1 and "by llmc" in html
    assert html.count("<details") == html.count("</details>") and "style" in html
    # Texts are never markup.
    odd = type(told)("<img src=x>: <b> by cpu\n  not <i>: <script>\nleft to PyTorch: <u>")
    assert "<img" not in odd._repr_html_() and "<script" not in odd._repr_html_() and "<u>" not in odd._repr_html_()
    assert odd.lines == [("<img src=x>", "<b>", "cpu", [("<i>", "<script>")])]
