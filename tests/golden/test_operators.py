"""Checks operators.py on a hand-made folder of cases: `python tests/golden/test_operators.py`."""

import contextlib
import gzip
import io
import json
import runpy
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import torch
import torch.nn.functional as F
from safetensors.torch import load, save_file

SCRIPT = Path(__file__).with_name("operators.py")


def case(case_id, name, args, inputs=None, cotangent="d"):
    grad = {} if inputs is None else {"grad": {"cotangents": [cotangent], "inputs": inputs}}
    return {"id": case_id, "op": case_id.split("/")[0], "torch": name, "digest": f"digest of {case_id}", "args": args} | grad


def tensor(key):
    return {"tensor": key}


class Operators(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        torch.manual_seed(0)
        self.tensors = {
            "x": torch.randn(3, 4), "w": torch.randn(4), "m": torch.rand(3, 4) > 0.5, "h": torch.randn(3, 4).bfloat16(),
            "i": torch.tensor([2, 0]), "s": torch.rand(3, 4), "e": torch.empty(0, 4), "big": torch.zeros(600),
            "d": torch.randn(3, 4), "d33": torch.randn(3, 3), "d64": torch.randn(6, 4), "d32": torch.randn(3, 2),
            "dh": torch.randn(3, 4).bfloat16(), "d24": torch.randn(2, 4),
        }  # fmt: skip
        self.cases = [
            case("gelu/0", "nn.functional.gelu", {"input": tensor("x"), "approximate": "tanh"}, ["input"]),
            case("rms_norm/0", "nn.functional.rms_norm",
                 {"input": tensor("x"), "normalized_shape": [4], "weight": tensor("w"), "eps": 1e-6}, ["input", "weight"]),
            case("masked_fill/0", "masked_fill",
                 {"input": tensor("x"), "mask": tensor("m"), "value": {"number": "-inf"}}, ["input"]),
            case("cat/0", "cat", {"tensors": [tensor("x"), tensor("s")], "dim": 0}, ["tensors.0", "tensors.1"], "d64"),
            case("topk/0", "topk", {"input": tensor("x"), "k": 2, "dim": -1}, ["input"], "d32"),
            case("to/0", "Tensor.to", {"input": tensor("x"), "dtype": {"dtype": "bfloat16"}}, ["input"], "dh"),
            case("exp/bf16", "exp", {"input": tensor("h")}, ["input"], "dh"),
            case("exp/empty", "exp", {"input": tensor("e")}, ["input"], "e"),
            case("rsub/0", "sub", {"input": 1.5, "other": tensor("x"), "alpha": 2}, ["other"]),
            case("prims::sum/0", "sum", {"input": tensor("i"), "dims": [0]}),
            case("mul/same", "mul", {"input": tensor("x"), "other": tensor("x")}, ["input", "other"]),
            case("embedding/0", "nn.functional.embedding", {"input": tensor("i"), "weight": tensor("x")}, ["weight"], "d24"),
            case("adamw/0", "optim.AdamW",
                 {"param": tensor("x"), "grad": tensor("s"), "exp_avg": tensor("s"), "exp_avg_sq": tensor("s"), "step": 3,
                  "lr": 0.1, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}),
            case("nothing/0", "nn.functional.no_such", {"input": tensor("x")}),
            case("ours/0", None, {"input": tensor("x")}),
            case("bad/0", "exp", {"input": tensor("x"), "sideways": True}),
            case("misfit/0", "exp", {"input": tensor("x")}, ["input"], "d33"),
            case("large/0", "exp", {"input": tensor("big")}),
            case("dropout/0", "nn.functional.dropout", {"input": tensor("x")}),
        ]  # fmt: skip

    def run_script(self):
        self.folder.joinpath("cases.json").write_text(json.dumps({"version": 1, "cases": self.cases}))
        save_file(self.tensors, self.folder / "tensors.safetensors")
        # In this process, since importing torch takes longer than everything else.
        arguments = [str(SCRIPT), str(self.folder), "--out", str(self.folder / "out")]
        with mock.patch("sys.argv", arguments), contextlib.redirect_stdout(io.StringIO()) as output:
            runpy.run_path(str(SCRIPT), run_name="__main__")
        return output.getvalue()

    def golden(self):
        self.run_script()
        out = self.folder / "out"
        listing = json.loads((out / "operators.json").read_text())
        return listing, load(gzip.decompress((out / "operators.safetensors.gz").read_bytes()))

    def test_vectors(self):
        listing, vectors = self.golden()
        skipped = [ids for ids in listing["skipped"].values()]
        self.assertEqual(sorted(sum(skipped, [])), ["bad/0", "dropout/0", "large/0", "misfit/0", "nothing/0", "ours/0"])
        self.assertEqual(listing["skipped"]["mirrors no torch function"], ["ours/0"])
        self.assertEqual(len(listing["cases"]), len(self.cases) - 6)
        self.assertEqual(listing["cases"]["gelu/0"], "digest of gelu/0")
        x = self.tensors["x"].clone().requires_grad_()
        expected = F.gelu(x, approximate="tanh")
        torch.testing.assert_close(vectors["gelu/0/out0"], expected.detach(), rtol=0, atol=0)
        (gradient,) = torch.autograd.grad(expected, x, self.tensors["d"])
        torch.testing.assert_close(vectors["gelu/0/grad/input"], gradient, rtol=0, atol=0)
        self.assertTrue(vectors["masked_fill/0/out0"].isneginf().equal(self.tensors["m"]))
        self.assertEqual(vectors["cat/0/grad/tensors.1"].shape, (3, 4))
        self.assertEqual(vectors["topk/0/out1"].dtype, torch.int64)
        self.assertEqual(vectors["exp/bf16/grad/input"].dtype, torch.bfloat16)
        self.assertEqual(vectors["to/0/grad/input"].dtype, torch.float32)
        torch.testing.assert_close(vectors["rsub/0/grad/other"], -2 * self.tensors["d"])
        self.assertEqual(vectors["prims::sum/0/out0"].item(), 2)
        # One tensor in two places is two inputs.
        torch.testing.assert_close(vectors["mul/same/grad/other"], self.tensors["d"] * self.tensors["x"])
        x, s = self.tensors["x"], self.tensors["s"]
        moments = s, 0.95 * s + 0.05 * s * s
        root = (moments[1] / (1 - 0.95**3)).sqrt() + 1e-8
        expected = x * (1 - 0.1 * 0.1) - 0.1 * moments[0] / (1 - 0.9**3) / root
        for index, value in enumerate((expected, *moments)):
            torch.testing.assert_close(vectors[f"adamw/0/out{index}"], value)

    def test_same_cases_same_bytes(self):
        first, _ = self.golden()
        before = (self.folder / "out" / "operators.safetensors.gz").read_bytes()
        second, _ = self.golden()
        self.assertEqual(first, second)
        self.assertEqual(before, (self.folder / "out" / "operators.safetensors.gz").read_bytes())

    def test_faults_name_file_and_case(self):
        for fault, part in (
            (case("z/0", "exp", {"input": tensor("absent")}), "case 'z/0': tensors.safetensors has no 'absent'"),
            (case("z/0", "exp", {"input": {"array": 1}}), "case 'z/0': {\"array\": 1} is no value"),
            (case("z/0", "exp", {"input": tensor("x")}, ["other"]), "case 'z/0': `grad.inputs` names 'other'"),
            (case("gelu/0", "exp", {}), "the id 'gelu/0' appears twice"),
            ({"id": "z/0"}, "op, digest, args missing"),
        ):
            self.cases.append(fault)
            with self.assertRaises(SystemExit) as exit:
                self.run_script()
            self.cases.pop()
            self.assertIn("cases.json", str(exit.exception))
            self.assertIn(part, str(exit.exception))
            self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    unittest.main()
