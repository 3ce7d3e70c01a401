"""Shapes of results where sizes of arguments are symbols, for fake implementations.

A meta computes with numbers. It is asked for the sizes at hand and for others, and what it answers is described by
formulas of the symbols: polynomials of the second degree, and quotients that are rounded down, as of windows. Where a
meta answers otherwise, or accepts no other size, the symbol is fixed to its number by a guard, and where two sizes can
only change together, their equality is a guard.
"""

from __future__ import annotations

import fractions
import itertools
import math

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv

from .._errors import Error

#: A symbol without a number (of data) is asked for as if it were this one.
_UNBACKED = 8
#: Numbers that are tried beside one at hand: near ones, multiples, small ones, and a large one, where limits show.
_OTHERS = (lambda n: n + 1, lambda n: 2 * n, lambda n: 3 * n, lambda n: n + 2, lambda n: 4 * n, lambda n: 2 * n + 1,
           lambda n: 2, lambda n: 3, lambda n: 1024 * n, lambda n: (1 << 20) * n + 1)
#: The widest step of a quotient, and the numbers that show it.
_WIDEST = 16


def _symbolic(value):
    """The symbolic integers among the arguments of a call."""
    if isinstance(value, torch.SymInt):
        return [value] if value.node.expr.free_symbols else []
    if isinstance(value, torch.Tensor):
        return [each for extent in value.shape for each in _symbolic(extent)]
    if isinstance(value, (list, tuple)):
        return [each for item in value for each in _symbolic(item)]
    return []


def _hint(env, symbol) -> int | None:
    """The number of a symbol; ``None`` for one of data."""
    # The second name is that of PyTorch 2.11.
    known = getattr(env, "backed_var_to_val", None)
    known = env.var_to_val if known is None else known
    return int(known[symbol]) if symbol in known else None


def inferred(infer, values) -> list:
    """Shape, element type and device of each result, of arguments whose sizes may be symbols.

    Parameters
    ----------
    infer : callable
        Takes ``values`` with each symbol replaced by a number, by the function that it is given, and returns metas.
    values : list
        The arguments.
    """
    while True:
        given = [each for value in values for each in _symbolic(value)]
        if not given:
            return [(list(meta.shape), meta.dtype, meta.device) for meta in infer(values, int)]
        found = _Formulas(infer, values, given).shapes()
        if found is not None:
            return found


class _Formulas:
    """The extents of results as formulas of the symbols."""

    def __init__(self, infer, values, given):
        self.infer, self.values = infer, values
        self.env = given[0].node.shape_env
        self.symbols = sorted({s for each in given for s in each.node.expr.free_symbols}, key=str)
        #: What the formulas of sizes at hand are, so that equal ones are the same objects.
        self.known = {each.node.expr: each for each in given}
        self.hints = {symbol: _hint(self.env, symbol) for symbol in self.symbols}
        self.base = {symbol: _UNBACKED if hint is None else hint for symbol, hint in self.hints.items()}
        self.asked: dict = {}

    def metas(self, changed: dict):
        """What the meta says for other numbers of some symbols; nothing where it refuses them."""
        numbers = {**self.base, **changed}
        key = tuple(numbers[symbol] for symbol in self.symbols)
        if key not in self.asked:
            replaced = {symbol: sympy.Integer(number) for symbol, number in numbers.items()}

            def number(value) -> int:
                if not isinstance(value, torch.SymInt):
                    return int(value)
                return int(value.node.expr.xreplace(replaced))

            try:
                self.asked[key] = self.infer(self.values, number)
            except (Error, TypeError, ValueError, OverflowError):
                if not changed:
                    raise
                self.asked[key] = None
        return self.asked[key]

    def shapes(self):
        """The results, or nothing where a guard made fewer symbols of them."""
        base = self.metas({})
        for symbol in self.symbols:
            if len(self.tried([symbol])) < 2:
                self.joined(symbol)
                return None
        metas = [metas for metas in self.asked.values() if metas is not None]
        kinds = {tuple((len(meta.shape), meta.dtype, meta.device) for meta in each) for each in metas}
        if len(kinds) > 1:
            self.fixed(self.symbols[0])
            return None
        made = []
        for i, meta in enumerate(base):
            shape = []
            for dim in range(len(meta.shape)):
                formula = self.formula(lambda metas: metas[i].shape[dim])
                if formula is None:
                    return None
                shape.append(self.size(formula, meta.shape[dim]))
            made.append((shape, meta.dtype, meta.device))
        return made

    def tried(self, together) -> list:
        """Other numbers of symbols, which change together, that the meta accepts."""
        first = self.base[together[0]]
        numbers = dict.fromkeys(other(first) for other in _OTHERS)
        numbers.pop(first, None)
        return [number for number in numbers if self.metas(dict.fromkeys(together, number)) is not None]

    def joined(self, symbol) -> None:
        """Makes a symbol that cannot change alone another one, or a number."""
        for other in self.symbols:
            if other != symbol and self.base[other] == self.base[symbol] and len(self.tried([other, symbol])) >= 2:
                both = [self.env.create_symintnode(each, hint=self.hints[each]) for each in (symbol, other)]
                if both[0] == both[1]:
                    return
        self.fixed(symbol)

    def fixed(self, symbol) -> None:
        """Makes a symbol a number, by a guard. One of data is an error of PyTorch's."""
        int(self.env.create_symintnode(symbol, hint=self.hints[symbol]))

    def size(self, formula, number: int):
        """A formula as an extent."""
        if formula in self.known:
            return self.known[formula]
        if not formula.free_symbols:
            return int(formula)
        unbacked = any(self.hints[symbol] is None for symbol in formula.free_symbols)
        return self.env.create_symintnode(formula, hint=None if unbacked else number)

    def formula(self, of):
        """What an extent is; nothing where a guard was made instead."""
        base = of(self.metas({}))
        alone = {symbol: self.tried([symbol]) for symbol in self.symbols}
        deciding = [symbol for symbol in self.symbols
                    if any(of(self.metas({symbol: number})) != base for number in alone[symbol])]
        if not deciding:
            return sympy.Integer(base)
        points = [{}, *({symbol: number} for symbol in deciding for number in alone[symbol])]
        for a, b in itertools.combinations(deciding, 2):
            points += [{a: x, b: y} for x, y in zip(alone[a], alone[b])]
        # Of what shows only where three of them change, or all.
        for several in (*itertools.combinations(deciding, 3), tuple(deciding)):
            points += [dict(zip(several, numbers)) for numbers in zip(*(alone[each] for each in several))]
        points = [each for each in points if self.metas(each) is not None]
        found = self.polynomial(of, deciding, points)
        if found is None and len(deciding) == 1:
            found = self.quotient(of, deciding[0])
        if found is None:
            self.fixed(deciding[0])
        return found

    def polynomial(self, of, symbols, points):
        """A polynomial of the second degree that all of the points are on."""
        terms = [sympy.Integer(1), *symbols, *(a * b for a, b in itertools.combinations_with_replacement(symbols, 2))]
        rows = []
        for point in points:
            numbers = {symbol: sympy.Integer(point.get(symbol, self.base[symbol])) for symbol in symbols}
            rows.append([fractions.Fraction(int(term.xreplace(numbers))) for term in terms]
                        + [fractions.Fraction(of(self.metas(point)))])
        factors = _solved(rows, len(terms))
        if factors is None:
            return None
        below = math.lcm(*(factor.denominator for factor in factors))
        above = sum((sympy.Integer(int(factor * below)) * term for factor, term in zip(factors, terms)),
                    sympy.Integer(0))
        return above if below == 1 else FloorDiv(above, sympy.Integer(below))

    def quotient(self, of, symbol):
        """``(step * symbol + offset) // width`` for all numbers that are tried."""
        numbers = [*range(self.base[symbol], self.base[symbol] + 3 * _WIDEST), *self.tried([symbol])]
        found = {number: of(metas) for number in numbers if (metas := self.metas({symbol: number})) is not None}
        for width in range(2, _WIDEST + 1):
            steps = {found[number + width] - each for number, each in found.items() if number + width in found}
            if len(steps) != 1:
                continue
            (step,) = steps
            least = max(each * width - step * number for number, each in found.items())
            most = min(each * width + width - 1 - step * number for number, each in found.items())
            if least <= most:
                return FloorDiv(step * symbol + least, sympy.Integer(width))
        return None


def _solved(rows, count: int):
    """The solution of linear equations, with zero for what they leave open; nothing where they contradict each other or
    are too few to show anything."""
    rows, pivots, at = [list(row) for row in rows], [], 0
    for column in range(count):
        pivot = next((i for i in range(at, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[at], rows[pivot] = rows[pivot], rows[at]
        rows[at] = [each / rows[at][column] for each in rows[at]]
        for i, row in enumerate(rows):
            if i != at and row[column]:
                rows[i] = [a - row[column] * b for a, b in zip(row, rows[at])]
        pivots.append(column)
        at += 1
    if at == len(rows) or any(row[-1] for row in rows[at:]):
        return None
    factors = [fractions.Fraction(0)] * count
    for row, column in zip(rows, pivots):
        factors[column] = row[-1]
    return factors
