"""Modules of PyTorch with complex numbers: conjugates that PyTorch computes later, and writes through views."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import fulgurite  # noqa: E402
import fulgurite.torch  # noqa: E402


class Calls(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *arguments):
        return self.function(*arguments)


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def close(found, expected) -> None:
    torch.testing.assert_close(found, expected.resolve_conj().resolve_neg(), rtol=1e-5, atol=1e-6)


FUNCTIONS = {
    "conj": lambda x: x.conj() * 2,
    "parts": lambda x: x.real * x.conj().imag,
    "mH": lambda x: x @ x.mH,
    "H": lambda x: x.H @ x,
    "adjoint": lambda x: x.adjoint(),
    "number": lambda x: (x * 2j - 1) / (3 - 1j) + x.real * 1j,
    "where": lambda x: torch.where(x.real > 0, x, 0.1j),
    "equal": lambda x: x == 1 + 1j,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_one_program(name):
    x = torch.randn(3, 4, dtype=torch.complex128)
    compiled = fulgurite.jit(Calls(FUNCTIONS[name]))
    close(compiled(x), FUNCTIONS[name](x))
    assert not compiled.breaks


@pytest.mark.parametrize("name", ["conj", "parts", "mH", "adjoint"])
def test_an_exported_program_has_its_conjugates(name):
    x = torch.randn(3, 4, dtype=torch.complex64)
    program = torch.export.export(Calls(FUNCTIONS[name]), (x,))
    close(fulgurite.torch.jit(program)(x), FUNCTIONS[name](x))


@pytest.mark.parametrize("view", [
    torch.conj, torch.Tensor.conj, torch.real, torch.imag, lambda x: x.real, lambda x: x.mH, torch.view_as_real,
    lambda x: torch.view_as_complex(torch.view_as_real(x)), torch.resolve_conj,
])
def test_a_write_through_a_view_is_one_into_its_base(view):
    def write(x):
        view(x).mul_(2)
        return x * 1

    x = torch.randn(3, 3, dtype=torch.complex64)
    ours, theirs = x.clone(), x.clone()
    close(fulgurite.jit(Calls(write))(ours), write(theirs))
    close(ours, theirs)
