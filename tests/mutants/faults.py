"""Small faults that can be planted in a module: each changes one place of its syntax tree."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

Function = ast.FunctionDef | ast.AsyncFunctionDef

OPERATORS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Div,), ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,), ast.Mod: (ast.Mult,), ast.Pow: (ast.Mult,),
    ast.BitOr: (ast.BitAnd,), ast.BitAnd: (ast.BitOr,), ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,), ast.BitXor: (ast.BitOr,), ast.And: (ast.Or,), ast.Or: (ast.And,),
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
}  # fmt: skip


@dataclass(frozen=True, order=True)
class Fault:
    """One change of a module: the text that stood at a place, and what stands there instead."""

    module: str  # below src/lastlayer, such as heads/head.py
    line: int
    column: int  # in bytes, as ast counts
    end_line: int
    end_column: int
    before: str
    after: str
    function: int  # the first line of the outermost function around it, 0 where there is none

    @property
    def room(self) -> str:
        """Return the folder that the module lies in, "." for the modules beside the folders."""
        return self.module.partition("/")[0] if "/" in self.module else "."

    def plant(self, source: str) -> str:
        """Return the module with this fault in it."""
        offsets, whole = _offsets(source), source.encode()
        start, end = offsets[self.line] + self.column, offsets[self.end_line] + self.end_column
        return (whole[:start] + self.after.encode() + whole[end:]).decode()


def _offsets(source: str) -> list[int]:
    """Return where each line begins in bytes, the first of them in place 1."""
    lengths = [len(line) for line in source.encode().splitlines(keepends=True)]
    return [0, *accumulate(lengths, initial=0)]


def find_faults(module: str, source: str) -> list[Fault]:
    """List every fault that can be planted in a module, in the order of their places."""
    offsets, whole = _offsets(source), source.encode()
    found = set()
    for node, function in _nodes(ast.parse(source), 0):
        for spot, after in _changes(node):
            end = spot.end_lineno or 0, spot.end_col_offset or 0
            first, last = offsets[spot.lineno] + spot.col_offset, offsets[end[0]] + end[1]
            before = whole[first:last].decode()
            found.add(Fault(module, spot.lineno, spot.col_offset, *end, before, after, function))
    return sorted(found)


def _nodes(node: ast.AST, function: int) -> Iterator[tuple[ast.AST, int]]:
    """Walk over what is computed: no annotations, decorators, texts, or names for importers."""
    yield node, function
    if isinstance(node, Function) and not function:
        function = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _skipped(child, node, function):
                yield from _nodes(child, function)


def _skipped(node: ast.AST, parent: ast.AST, function: int) -> bool:
    if isinstance(node, ast.JoinedStr):
        return True
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        alias = isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.BitOr)
        return isinstance(target, ast.Name) and (target.id == "__all__" or (alias and not function))
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    types = isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name)
    return types and parent.func.id in ("isinstance", "cast") and node in parent.args[1:]


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Give places in a node, and what may stand there instead."""
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign):
        for other in OPERATORS.get(type(node.op), ()):
            yield node, _write(node, op=other())
    if isinstance(node, ast.Compare):
        for i, old in enumerate(node.ops):
            for other in OPERATORS[type(old)]:
                yield node, _write(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield node, _write(node.operand)
    if isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(
        node.test, ast.Compare | ast.UnaryOp
    ):  # those have a negation of their own
        yield node.test, f"(not {_write(node.test)})"
    if isinstance(node, ast.Constant):
        yield from ((node, other) for other in _other_constants(node.value))
    if isinstance(node, ast.stmt):
        yield from ((node, other) for other in _other_statements(node))


def _write(node: ast.AST, **changes: object) -> str:
    changed = copy.copy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    written = ast.unparse(changed)
    return written if isinstance(node, ast.stmt) else f"({written})"


def _other_constants(value: object) -> Iterator[str]:
    if isinstance(value, bool):
        yield str(not value)
    elif isinstance(value, int):
        yield str(value + 1)
    elif isinstance(value, float):
        yield repr(value * 2 if value else 1.0)


def _other_statements(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield "return None"
    if isinstance(node, ast.Break):
        yield "continue"
    if isinstance(node, ast.Continue):
        yield "break"
    if isinstance(node, ast.AugAssign | ast.Raise):
        yield "pass"
    if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant | ast.Yield):
        yield "pass"


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
