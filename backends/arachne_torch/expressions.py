"""Symbolic sizes in exported programs: let through only where working them out takes next to nothing.

torch hands them to SymPy, which evaluates them as Python and works out powers, sums and products exactly, however long
that takes. So they are parsed here first: whole numbers, symbols, and those of SymPy's and torch's functions that sizes
are made of.
"""

from __future__ import annotations

import ast
import re

MAX_CHARACTERS, MAX_PARTS, MAX_POWERS, MAX_POWER = 500, 120, 2, 8
MAX_NUMBER, MAX_BITS = 1 << 63, 64

NUMBERS = ("Integer", "Rational", "Float")
SYMBOLS = ("Symbol", "Dummy")
FUNCTIONS = (
    *("Add", "Mul", "Mod", "Max", "Min", "Abs", "Eq", "Ne", "Equality", "Unequality", "GreaterThan", "LessThan"),
    *("StrictGreaterThan", "StrictLessThan", "And", "Or", "Not", "FloorDiv", "PythonMod", "CleanDiv", "CeilDiv"),
    *("CeilToInt", "FloorToInt", "TruncToInt", "TruncToFloat", "RoundToInt", "ToFloat", "FloatTrueDiv", "IntTrueDiv"),
    *("ModularIndexing", "Where", "Identity"),
)
POWERS = ("Pow", "PowByNatural")
WORDS = re.compile(r"[a-z]{1,3}\d+|true|false|oo|int_oo", re.ASCII)
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.USub, ast.UAdd)
COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def is_quick(text: str) -> bool:
    """Whether an expression is of the form that sizes have, short, and quickly worked out."""
    if len(text) > MAX_CHARACTERS or not text.isascii():
        return False
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    parts = list(ast.walk(tree))
    powers = sum(isinstance(part, ast.Pow) or _callee(part) in POWERS for part in parts)
    return len(parts) <= MAX_PARTS and powers <= MAX_POWERS and _is_fine(tree.body)


def _is_fine(part: ast.expr) -> bool:
    match part:
        case ast.Constant():
            return type(part.value) is int and part.value <= MAX_NUMBER
        case ast.Name():
            return bool(WORDS.fullmatch(part.id))
        case ast.UnaryOp():
            return isinstance(part.op, OPERATORS) and _is_fine(part.operand)
        case ast.BinOp():
            small = not isinstance(part.op, ast.Pow) or _is_small(part.right)
            return small and isinstance(part.op, OPERATORS) and _is_fine(part.left) and _is_fine(part.right)
        case ast.Compare():
            known = all(isinstance(operator, COMPARISONS) for operator in part.ops)
            return known and all(map(_is_fine, (part.left, *part.comparators)))
        case ast.Call():
            return _is_fine_call(part)
    return False


def _is_fine_call(part: ast.Call) -> bool:
    name, plain = _callee(part), not part.keywords
    if name in SYMBOLS:
        return all(_is_setting(keyword.value) for keyword in part.keywords) and all(
            isinstance(given, ast.Constant) and isinstance(given.value, str) and WORDS.fullmatch(given.value)
            for given in part.args
        )
    if name in NUMBERS:
        return all(map(_is_number, part.args)) and all(_is_setting(keyword.value) for keyword in part.keywords)
    if name in POWERS:
        return plain and len(part.args) == 2 and _is_fine(part.args[0]) and _is_small(part.args[1])
    return plain and name in FUNCTIONS and all(map(_is_fine, part.args))


def _is_setting(part: ast.expr) -> bool:
    """Whether this is an assumption about a symbol, or the precision of a number in bits."""
    return isinstance(part, ast.Constant) and isinstance(part.value, int) and part.value <= MAX_BITS


def _is_number(part: ast.expr) -> bool:
    """`4`, `-4`, or the digits of a real number as text."""
    if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.USub):
        part = part.operand
    if not isinstance(part, ast.Constant):
        return False
    if isinstance(part.value, str):
        return bool(re.fullmatch(r"-?\d{1,20}(\.\d{1,40})?(e-?\d{1,2})?", part.value, re.ASCII))
    return type(part.value) is int and part.value <= MAX_NUMBER


def _is_small(part: ast.expr) -> bool:
    """An exponent that is written out and small."""
    if _callee(part) == "Integer" and isinstance(part, ast.Call) and len(part.args) == 1:
        part = part.args[0]
    if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.USub):
        part = part.operand
    return isinstance(part, ast.Constant) and type(part.value) is int and part.value <= MAX_POWER


def _callee(part: ast.AST) -> str:
    return part.func.id if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) else ""
