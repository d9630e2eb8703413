"""What the kernels need of the machine and Python has no words for: pointers, an atomic counter, vector loops.

The two vector loops are written as LLVM vectors of a fixed width. LLVM splits them into the registers that the
processor has (AVX-512, AVX2, NEON), and they stay vectors whatever the optimiser thinks of a Python loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding
import numba.extending
from llvmlite import ir
from numba import types
from numba.core import cgutils

_F32, _I64, _I32 = ir.FloatType(), ir.IntType(64), ir.IntType(32)
_FAST = ("reassoc", "contract", "nsz")


_FEATURES = llvmlite.binding.get_host_cpu_features()
LANES = 16 if _FEATURES.get("avx512f") else 8 if _FEATURES.get("avx2") else 4  # float32 numbers in one register


def intrinsic(function: Callable[..., Any]) -> Any:
    """numba's intrinsic, as a value that type checkers let the kernels call with the arguments after the context."""
    return numba.extending.intrinsic(function)


def shaped_intrinsic(function: Callable[..., Any]) -> Any:
    """An intrinsic whose first arguments are constants."""
    return numba.extending.intrinsic(prefer_literal=True)(function)


@intrinsic
def fetch_add(t: Any, address: Any) -> Any:
    """Takes the next number of the int64 counter at `address`: each caller gets its own.

    What a thread wrote before is visible to whoever takes a later number.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], _I64.as_pointer())
        return builder.atomic_rmw("add", pointer, ir.Constant(_I64, 1), "acq_rel")

    return types.int64(types.int64), generate


def _launch(builder: Any, gomp: Any, function: Any, data: Any, threads: Any) -> None:
    pointer = ir.IntType(8).as_pointer()
    work = ir.FunctionType(ir.VoidType(), [pointer])
    launch = ir.FunctionType(ir.VoidType(), [work.as_pointer(), pointer, _I32, _I32])
    target = builder.inttoptr(function, work.as_pointer())
    with builder.if_else(builder.icmp_signed(">", threads, ir.Constant(_I64, 1))) as (many, one):
        with many:
            count = builder.trunc(threads, _I32)
            builder.call(builder.inttoptr(gomp, launch.as_pointer()), [target, data, count, ir.Constant(_I32, 0)])
        with one:
            builder.call(target, [data])


@intrinsic
def run_team(t: Any, gomp: Any, function: Any, data: Any, threads: Any) -> Any:
    """GOMP_parallel(function, data, threads, 0); on one thread `function` is called as it is.

    `data` is an address: what lies there must be held by the caller of the compiled code. numba frees an array after
    its last use by name, which is before this call.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        gomp, function, data, threads = args
        _launch(builder, gomp, function, builder.inttoptr(data, ir.IntType(8).as_pointer()), threads)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), generate


@intrinsic
def run_team_on(t: Any, gomp: Any, function: Any, threads: Any, values: Any) -> Any:
    """`run_team` over arguments on the stack: the address of a counter that starts at zero, then `values`."""
    count = len(values)
    kind: Any = types.UniTuple

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        gomp, function, threads, packed = args
        block = cgutils.alloca_once(builder, ir.ArrayType(_I64, count + 2))  # type: ignore[no-untyped-call]
        block = builder.bitcast(block, _I64.as_pointer())
        place = [builder.gep(block, [ir.Constant(_I64, i)], source_etype=_I64) for i in range(count + 2)]
        builder.store(builder.ptrtoint(place[-1], _I64), place[0])
        for i in range(count):
            builder.store(builder.extract_value(packed, i), place[i + 1])
        builder.store(ir.Constant(_I64, 0), place[-1])
        _launch(builder, gomp, function, builder.bitcast(block, ir.IntType(8).as_pointer()), threads)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, kind(types.int64, count)), generate


@intrinsic
def float_of_bits(t: Any, bits: Any) -> Any:
    """The float32 with these bits, from an int32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _F32)

    return types.float32(types.int32), generate


def _access(name: str, llvm: ir.Type, kind: Any) -> tuple[Any, Any]:
    @intrinsic
    def load(t: Any, address: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.gep(builder.inttoptr(args[0], llvm.as_pointer()), [args[1]], source_etype=llvm)
            return builder.load(pointer, typ=llvm)

        return kind(types.int64, types.int64), generate

    @intrinsic
    def store(t: Any, address: Any, index: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.gep(builder.inttoptr(args[0], llvm.as_pointer()), [args[1]], source_etype=llvm)
            builder.store(args[2], pointer)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, kind), generate

    return load, store


load_f32, store_f32 = _access("f32", _F32, types.float32)
load_i32, store_i32 = _access("i32", _I32, types.int32)
load_i64, store_i64 = _access("i64", _I64, types.int64)


def _vector_at(builder: Any, base: Any, offset: Any, width: int) -> Any:
    """A vector of `width` float32 at base + 4 * offset, aligned to one float32."""
    kind = ir.VectorType(_F32, width)
    element = builder.gep(builder.inttoptr(base, _F32.as_pointer()), [offset], source_etype=_F32)
    return builder.load(builder.bitcast(element, kind.as_pointer()), align=4, typ=kind)


def _store_vector(builder: Any, value: Any, base: Any, offset: Any) -> None:
    element = builder.gep(builder.inttoptr(base, _F32.as_pointer()), [offset], source_etype=_F32)
    builder.store(value, builder.bitcast(element, value.type.as_pointer()), align=4)


def _splat(builder: Any, value: Any, width: int) -> Any:
    kind = ir.VectorType(_F32, width)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(_I32, 0))
    mask = ir.Constant(ir.VectorType(_I32, width), [0] * width)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), mask)


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.fadd(builder.fmul(a, b, flags=_FAST), c, flags=_FAST)


def _counted(
    builder: Any, count: Any, initial: Sequence[Any], step: Callable[[Any, list[Any]], list[Any]]
) -> list[Any]:
    """for (i = 0; i < count; i++) with `initial` carried through registers; returns the carried values."""
    before = builder.block
    head, inside, after = (builder.append_basic_block(name) for name in ("head", "inside", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    index = builder.phi(_I64)
    carried = [builder.phi(value.type) for value in initial]
    index.add_incoming(ir.Constant(_I64, 0), before)
    for phi, value in zip(carried, initial, strict=True):
        phi.add_incoming(value, before)
    builder.cbranch(builder.icmp_signed("<", index, count), inside, after)
    builder.position_at_end(inside)
    results = step(index, list(carried))
    last = builder.block
    index.add_incoming(builder.add(index, ir.Constant(_I64, 1)), last)
    for phi, value in zip(carried, results, strict=True):
        phi.add_incoming(value, last)
    builder.branch(head)
    builder.position_at_end(after)
    return list(carried)


def _literal(*kinds: Any) -> list[int]:
    """The constants behind literal types: what shapes the generated loop must be known when it is compiled."""
    return [int(kind.literal_value) for kind in kinds]


def _function(module: Any, kind: Any, name: str) -> Any:
    insert: Any = cgutils.get_or_insert_function
    return insert(module, kind, name)


def _prefetch_row(builder: Any, base: Any, row: Any, length: int) -> None:
    """Asks for the lines of row `row` of a float32 matrix of `length` columns at `base`."""
    pointer = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, _I32, _I32, _I32])
    function = _function(builder.module, kind, "llvm.prefetch.p0")
    start = builder.add(base, builder.mul(row, ir.Constant(_I64, 4 * length)))
    for line in range(0, 4 * length, 64):
        address = builder.inttoptr(builder.add(start, ir.Constant(_I64, line)), pointer)
        builder.call(function, [address, *(ir.Constant(_I32, value) for value in (0, 3, 1))])


def _multiply_add(shape: Sequence[int], *, clear: bool, ahead: bool = False) -> Callable[..., Any]:
    rows, width = shape

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a, lda, b, ldb, c, ldc, count = args[2:9]
        at = [builder.mul(ldc, ir.Constant(_I64, r)) for r in range(rows)]
        a_rows = [builder.mul(lda, ir.Constant(_I64, r)) for r in range(rows)]
        a_pointer = builder.inttoptr(a, _F32.as_pointer())

        def step(k: Any, sums: list[Any]) -> list[Any]:
            if ahead:
                _prefetch_row(builder, args[9], k, width)
            vector = _vector_at(builder, b, builder.mul(k, ldb), width)
            out = []
            for r in range(rows):
                place = builder.gep(a_pointer, [builder.add(a_rows[r], k)], source_etype=_F32)
                factor = _splat(builder, builder.load(place, typ=_F32), width)
                out.append(_fma(builder, factor, vector, sums[r]))
            return out

        zero = ir.Constant(ir.VectorType(_F32, width), [0.0] * width)
        start = [zero if clear else _vector_at(builder, c, offset, width) for offset in at]
        for value, offset in zip(_counted(builder, count, start, step), at, strict=True):
            _store_vector(builder, value, c, offset)
        return context.get_dummy_value()

    return generate


@shaped_intrinsic
def multiply_add(t: Any, rows: Any, width: Any, a: Any, lda: Any, b: Any, ldb: Any, c: Any, ldc: Any, n: Any) -> Any:
    """c[r, :width] += sum over k < n of a[r, k] * b[k, :width], for r < rows. `rows` and `width` are constants.

    Addresses of float32, leading dimensions in numbers. The sums stay in rows * width / lanes registers.
    """
    return types.void(rows, width, *[types.int64] * 7), _multiply_add(_literal(rows, width), clear=False)


@shaped_intrinsic
def multiply_add_ahead(
    t: Any, rows: Any, width: Any, a: Any, lda: Any, b: Any, ldb: Any, c: Any, ldc: Any, n: Any, ahead: Any
) -> Any:
    """`multiply_add` that asks for row k of the matrix at `ahead` ([n, width]) while it works on row k of b."""
    generate = _multiply_add(_literal(rows, width), clear=False, ahead=True)
    return types.void(rows, width, *[types.int64] * 8), generate


@shaped_intrinsic
def multiply(t: Any, rows: Any, width: Any, a: Any, lda: Any, b: Any, ldb: Any, c: Any, ldc: Any, n: Any) -> Any:
    """`multiply_add` that starts from zero instead of c."""
    return types.void(rows, width, *[types.int64] * 7), _multiply_add(_literal(rows, width), clear=True)


def _sums_of_four(builder: Any, vectors: Sequence[Any]) -> Any:
    """The sums of four vectors of at least four numbers as one vector of four: a third of four separate reductions."""
    size = vectors[0].type.count

    def add(left: Any, right: Any, half: int) -> Any:
        """Adds the halves of each group of 2 * half numbers, of both vectors one after the other."""
        starts = range(0, 2 * size, 2 * half)
        low = [start + i for start in starts for i in range(half)]
        pick = ir.VectorType(_I32, len(low))
        lows = builder.shuffle_vector(left, right, ir.Constant(pick, low))
        return builder.fadd(lows, builder.shuffle_vector(left, right, ir.Constant(pick, [i + half for i in low])))

    first, second = add(vectors[0], vectors[1], size // 2), add(vectors[2], vectors[3], size // 2)
    total, half = add(first, second, size // 4), size // 8
    while half:
        swapped = ir.Constant(ir.VectorType(_I32, size), [i ^ half for i in range(size)])
        total = builder.fadd(total, builder.shuffle_vector(total, total, swapped))
        half //= 2
    heads = ir.Constant(ir.VectorType(_I32, 4), [i * (size // 4) for i in range(4)])
    return builder.shuffle_vector(total, total, heads)


@shaped_intrinsic
def dots(
    t: Any, rows: Any, length: Any, a: Any, lda: Any, b: Any, ldb: Any, out: Any, ld_out: Any, n: Any, ahead: Any
) -> Any:
    """out[r, t] = a[r, :length] . b[t, :length], for r < rows, t < n. `rows` and `length` are constants.

    While it works on row t of b it asks for row t of the matrix at `ahead`.
    """
    num_rows, size = _literal(rows, length)
    width = next(w for w in (16, 8, 4, 2, 1) if w <= LANES and size % w == 0)
    at_once = 4 if width >= 4 else 1

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a, lda, b, ldb, out, ld_out, count, ahead = args[2:]
        zero = ir.Constant(ir.VectorType(_F32, width), [0.0] * width)

        def products(first: Any, tokens: int) -> list[list[Any]]:
            sums = [[zero] * tokens for _ in range(num_rows)]
            for token in range(tokens):
                t = builder.add(first, ir.Constant(_I64, token))
                _prefetch_row(builder, ahead, t, size)
                row = builder.mul(t, ldb)
                for part in range(0, size, width):
                    offset = ir.Constant(_I64, part)
                    vector = _vector_at(builder, b, builder.add(row, offset), width)
                    for r in range(num_rows):
                        a_offset = builder.add(builder.mul(lda, ir.Constant(_I64, r)), offset)
                        query = _vector_at(builder, a, a_offset, width)
                        sums[r][token] = _fma(builder, query, vector, sums[r][token])
            return sums

        def place(r: int, t: Any) -> Any:
            return builder.add(builder.mul(ld_out, ir.Constant(_I64, r)), t)

        def four(i: Any, _: list[Any]) -> list[Any]:
            first = builder.mul(i, ir.Constant(_I64, at_once))
            for r, sums in enumerate(products(first, at_once)):
                _store_vector(builder, _sums_of_four(builder, sums), out, place(r, first))
            return []

        def one(i: Any, _: list[Any]) -> list[Any]:
            t = builder.add(done, i)
            for r, sums in enumerate(products(t, 1)):
                total = builder.insert_element(
                    ir.Constant(ir.VectorType(_F32, 1), ir.Undefined),
                    _reduce(builder, "fadd", sums[0], ir.Constant(_F32, 0.0)),
                    ir.Constant(_I32, 0),
                )
                _store_vector(builder, total, out, place(r, t))
            return []

        done = ir.Constant(_I64, 0)
        if at_once == 4:
            _counted(builder, builder.sdiv(count, ir.Constant(_I64, 4)), [], four)
            done = builder.sub(count, builder.srem(count, ir.Constant(_I64, 4)))
        _counted(builder, builder.sub(count, done), [], one)
        return context.get_dummy_value()

    return types.void(rows, length, *[types.int64] * 8), generate


def _call(builder: Any, name: str, kind: Any, *values: Any) -> Any:
    """An LLVM intrinsic on vectors of one type, such as llvm.rint.v16f32."""
    function = _function(builder.module, ir.FunctionType(kind, [kind] * len(values)), f"llvm.{name}.v{kind.count}f32")
    return builder.call(function, values)


# 2^f for |f| <= 1/2, Taylor coefficients ln(2)^n / n!: the first one left out is below 2e-8.
_EXP2 = [math.log(2) ** n / math.factorial(n) for n in range(8)]


def _exp2(builder: Any, x: Any) -> Any:
    """2^x for x <= 127; zero below -126.5, -inf included."""
    kind, count = x.type, x.type.count
    wide = ir.VectorType(_I32, count)
    low = ir.Constant(kind, [-127.0] * count)
    x = builder.select(builder.fcmp_ordered("<", x, low), low, x)
    whole = _call(builder, "rint", kind, x)
    part = builder.fsub(x, whole)
    value = ir.Constant(kind, [_EXP2[-1]] * count)
    for coefficient in reversed(_EXP2[:-1]):
        value = _fma(builder, value, part, ir.Constant(kind, [coefficient] * count))
    exponent = builder.add(builder.fptosi(whole, wide), ir.Constant(wide, [127] * count))
    return builder.fmul(value, builder.bitcast(builder.shl(exponent, ir.Constant(wide, [23] * count)), kind))


def _reduce(builder: Any, name: str, value: Any, *start: Any) -> Any:
    kind = ir.FunctionType(_F32, [*(s.type for s in start), value.type])
    function = _function(builder.module, kind, f"llvm.vector.reduce.{name}.v{value.type.count}f32")
    return builder.call(function, [*start, value], fastmath=("reassoc", "nsz"))


@intrinsic
def row_max(t: Any, address: Any, count: Any) -> Any:
    """The largest of `count` vectors of LANES float32 at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def take(i: Any, best: list[Any]) -> list[Any]:
            value = _vector_at(builder, args[0], builder.mul(i, ir.Constant(_I64, LANES)), LANES)
            return [builder.select(builder.fcmp_ordered(">", value, best[0]), value, best[0])]

        start = [ir.Constant(ir.VectorType(_F32, LANES), [-math.inf] * LANES)]
        return _reduce(builder, "fmax", _counted(builder, args[1], start, take)[0])

    return types.float32(types.int64, types.int64), generate


@intrinsic
def row_exp2(t: Any, address: Any, count: Any, most: Any, factor: Any) -> Any:
    """s = 2^((s - most) * factor) in place over `count` vectors of LANES float32; returns the sum."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address, count, most, factor = args
        most, factor = _splat(builder, most, LANES), _splat(builder, factor, LANES)

        def take(i: Any, total: list[Any]) -> list[Any]:
            at = builder.mul(i, ir.Constant(_I64, LANES))
            value = _vector_at(builder, address, at, LANES)
            value = _exp2(builder, builder.fmul(builder.fsub(value, most), factor))
            _store_vector(builder, value, address, at)
            return [builder.fadd(total[0], value)]

        start = [ir.Constant(ir.VectorType(_F32, LANES), [0.0] * LANES)]
        return _reduce(builder, "fadd", _counted(builder, count, start, take)[0], ir.Constant(_F32, 0.0))

    return types.float32(types.int64, types.int64, types.float32, types.float32), generate


def _silu_and_mul(width: int) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        gate, up, out, count = args

        def take(i: Any, _: list[Any]) -> list[Any]:
            at = builder.mul(i, ir.Constant(_I64, width))
            x = _vector_at(builder, gate, at, width)
            one = ir.Constant(x.type, [1.0] * width)
            # Beyond 126 the power of two leaves float32; the quotient is then x * 2^-126 or less, and zero serves.
            power = builder.fmul(x, ir.Constant(x.type, [-1.0 / math.log(2)] * width))
            high = ir.Constant(x.type, [126.0] * width)
            power = builder.select(builder.fcmp_ordered(">", power, high), high, power)
            silu = builder.fdiv(x, builder.fadd(one, _exp2(builder, power)))
            _store_vector(builder, builder.fmul(silu, _vector_at(builder, up, at, width)), out, at)
            return []

        _counted(builder, count, [], take)
        return context.get_dummy_value()

    return generate


@intrinsic
def row_silu_and_mul(t: Any, gate: Any, up: Any, out: Any, count: Any) -> Any:
    """out = gate / (1 + e^-gate) * up over `count` vectors of LANES float32."""
    return types.void(*[types.int64] * 4), _silu_and_mul(LANES)


@intrinsic
def rest_silu_and_mul(t: Any, gate: Any, up: Any, out: Any, count: Any) -> Any:
    """The same over `count` single float32."""
    return types.void(*[types.int64] * 4), _silu_and_mul(1)


@intrinsic
def exp2_f32(t: Any, x: Any) -> Any:
    """2^x of one float32, by the same polynomial."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.extract_element(_exp2(builder, _splat(builder, args[0], 4)), ir.Constant(_I32, 0))

    return types.float32(types.float32), generate
