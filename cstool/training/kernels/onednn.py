"""Products of bfloat16 matrices by oneDNN, called by ctypes: by AMX where the CPU has it, else by AVX512_BF16.

The wheel is `onednn-cpu-gomp`, which comes with cstool on Linux with an x86-64 CPU. One call is one product in the
calling thread; a thread keeps its prepared products, by the shapes and strides of the operands, and shares nothing.
Sums are in float32.

Source: the headers of oneDNN 3.2, `oneapi/dnnl/dnnl.h`, `dnnl_common_types.h` and `dnnl_types.h`, for functions and
numbers.
"""

import ctypes
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from signal import SIG_BLOCK, SIG_SETMASK, SIGBUS, SIGFPE, SIGILL, SIGSEGV, pthread_sigmask, valid_signals
from typing import Any

import numpy as np

from cstool.foundation.errors import ClusterError
from cstool.training.kernels.bfloat16 import BFLOAT16
from cstool.training.kernels.gemm import Array, WorkSpace
from cstool.training.kernels.recording import Recording, recording

WHEEL = "onednn-cpu-gomp"
RELEASE = "2023.2.0"
"""of the wheel, as cstool requires it"""
VERSION = (3, 2)
"""version of oneDNN to which these numbers belong"""
FAST = ("brg:", "gemm:jit:bf16")
"""first letters of the names of implementations that use the instructions for bfloat16"""

_UNIMPLEMENTED = 3
"""status of products without an implementation in oneDNN, on this CPU or at all"""

_HELD_BACK = frozenset(valid_signals() - {SIGSEGV, SIGBUS, SIGFPE, SIGILL})
"""signals that wait while oneDNN computes: all but those of a fault in its own code"""
_Handle = ctypes.c_void_p
_MOST_DIMENSIONS = 12
_DTYPES = {np.dtype(np.float32): 3, BFLOAT16: 2}
_CPU, _IN_ORDER, _USER_SCRATCHPAD = 1, 1, 1
_IMPLEMENTATION, _SCRATCHPAD = 8, 136
"""queries"""
_SOURCE, _WEIGHTS, _TARGET, _BIAS, _SCRATCH = 1, 33, 17, 41, 80
"""arguments"""


class _Argument(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int), ("memory", _Handle)]  # noqa: RUF012


class _Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_int), ("minor", ctypes.c_int)]  # noqa: RUF012  (the first two of its fields)


class UnimplementedError(ClusterError):
    """oneDNN has no implementation of it on this CPU."""


class Library:
    """oneDNN as it was loaded, and its engine for this CPU.

    Raises:
        OSError: it, or the libgomp that it wants, cannot be loaded
        ClusterError: it is another version
    """

    def __init__(self, path: Path) -> None:
        before = os.sched_getaffinity(0)
        self.dnnl = ctypes.CDLL(str(path))
        self.dnnl.dnnl_version.restype = ctypes.POINTER(_Version)
        self.dnnl.dnnl_primitive_desc_query_md.restype = _Handle
        self.dnnl.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        gomp = ctypes.PyDLL("libgomp.so.1")
        # Without letting go of the interpreter lock, which takes longer than these.
        self.max_threads, self.set_threads = gomp.omp_get_max_threads, gomp.omp_set_num_threads
        self.max_threads.argtypes, self.set_threads.argtypes = (), (ctypes.c_int,)
        if os.sched_getaffinity(0) != before:
            # libgomp binds the thread that loads it where OMP_PROC_BIND says so; all lanes would begin on its core.
            os.sched_setaffinity(0, before)
            logging.getLogger("cstool").warning(
                "OMP_PROC_BIND would keep all lanes on one core: they may use all of this process's, as before."
            )
        version = self.dnnl.dnnl_version().contents
        if (version.major, version.minor) != VERSION:
            raise ClusterError(
                f"{path}: must be oneDNN {VERSION[0]}.{VERSION[1]}, got {version.major}.{version.minor}",
                f"pip install {WHEEL}=={RELEASE} installs that one",
            )
        self.engine = _Handle()
        self.call("dnnl_engine_create", ctypes.byref(self.engine), _CPU, ctypes.c_size_t(0))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a status.

        Raises:
            ClusterError: the status is an error
        """
        status = getattr(self.dnnl, name)(*arguments)
        if status:
            kind = UnimplementedError if status == _UNIMPLEMENTED else ClusterError
            raise kind(f"oneDNN: {name} must succeed, got status {status}", None)

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        """Have oneDNN compute in the calling thread alone: lanes are the only parallelism. No signal interrupts it.

        libgomp has a number for each thread; the main thread's is perhaps shared with other libraries, such as PyTorch.
        A signal that is handled within `dnnl_sgemm` corrupts the heap (measured with oneDNN 3.2: in one of four runs
        that got SIGINT): it waits until the thread is back.
        """
        handled = pthread_sigmask(SIG_BLOCK, _HELD_BACK)
        before = self.max_threads()
        if before != 1:
            self.set_threads(1)
        try:
            yield
        finally:
            if before != 1:
                self.set_threads(before)
            pthread_sigmask(SIG_SETMASK, handled)

    def new(self, name: str, *arguments: Any) -> _Handle:
        """Call a function that creates an object, and return its handle."""
        made = _Handle()
        self.call(name, ctypes.byref(made), *arguments)
        return made


@cache
def library_path() -> Path | None:
    """Path of the library in the wheel; None where the wheel is not installed."""
    try:
        files = metadata.files(WHEEL) or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())).resolve() for file in files if file.name == "libdnnl.so.3"), None)


class _Product:
    """out = a b (+ bias), or out += a b, for operands of one form, to be computed by one thread."""

    def __init__(self, thread: "_Thread", a: Array, b: Array, out: Array, bias: Array | None, adds: bool) -> None:
        library = self._library = thread.library
        attributes = library.new("dnnl_primitive_attr_create")
        library.call("dnnl_primitive_attr_set_scratchpad_mode", attributes, _USER_SCRATCHPAD)
        if adds:
            operations = library.new("dnnl_post_ops_create")
            library.call("dnnl_post_ops_append_sum", operations, ctypes.c_float(1.0), 0, 0)
            library.call("dnnl_primitive_attr_set_post_ops", attributes, operations)
            library.call("dnnl_post_ops_destroy", operations)
        forms = {_SOURCE: _form(library, a), _WEIGHTS: _form(library, b), _TARGET: _form(library, out)}
        of_bias = None
        if bias is not None:
            of_bias = forms[_BIAS] = _form(library, bias.reshape((1,) * (out.ndim - 1) + bias.shape))
        operands = forms[_SOURCE], forms[_WEIGHTS], of_bias, forms[_TARGET]
        plan = library.new("dnnl_matmul_primitive_desc_create", library.engine, *operands, attributes)
        self._primitive = library.new("dnnl_primitive_create", plan)
        name = ctypes.c_char_p()
        library.call("dnnl_primitive_desc_query", plan, _IMPLEMENTATION, 0, ctypes.byref(name))
        self.implementation = (name.value or b"").decode()
        scratch = _Handle(library.dnnl.dnnl_primitive_desc_query_md(plan, _SCRATCHPAD, 0))
        self._scratch_bytes = library.dnnl.dnnl_memory_desc_get_size(scratch)
        self._thread = thread
        # The form of the scratch memory is the plan's.
        self._forms, self._plan = {**forms, _SCRATCH: scratch}, plan
        self._memories, self._arguments = self._places()
        library.call("dnnl_primitive_attr_destroy", attributes)

    def _places(self) -> tuple[list[_Handle], Any]:
        """Make places for the operands of a call, and the arguments that name them."""
        memories = [
            self._library.new("dnnl_memory_create", form, self._library.engine, None) for form in self._forms.values()
        ]
        numbered = [_Argument(number, memory) for number, memory in zip(self._forms, memories, strict=True)]
        return memories, (_Argument * len(numbered))(*numbered)

    def _fill(self, memories: Sequence[_Handle], arrays: Sequence[Array]) -> Array:
        """Point places at operands, and at scratch memory, which is returned."""
        scratch = self._thread.memory.lend("scratch", (-(-self._scratch_bytes // 4),))
        for memory, array in zip(memories, (*arrays, scratch), strict=True):
            self._library.dnnl.dnnl_memory_set_data_handle(memory, _Handle(array.ctypes.data))
        return scratch

    def __call__(self, *arrays: Array) -> None:
        self._fill(self._memories, arrays)
        stream, count = self._thread.stream, len(self._arguments)
        self._library.call("dnnl_primitive_execute", self._primitive, stream, count, self._arguments)

    def record(self, into: Recording, *arrays: Array) -> None:
        """Write a call down, with places of its own."""
        memories, arguments = self._places()
        into.kept += [self, arguments, *arrays, self._fill(memories, arrays)]
        execute = ctypes.cast(self._library.dnnl.dnnl_primitive_execute, ctypes.c_void_p).value or 0
        handles = (handle.value or 0 for handle in (self._primitive, self._thread.stream))
        into.function(execute, (*handles, len(arguments), ctypes.addressof(arguments)), returns_status=True)


def _form(library: Library, array: Array) -> _Handle:
    """Shape, dtype and strides of an array."""
    sizes = ctypes.c_int64 * _MOST_DIMENSIONS
    strides = sizes(*(stride // array.itemsize for stride in array.strides))
    name = "dnnl_memory_desc_create_with_strides"
    return library.new(name, array.ndim, sizes(*array.shape), _DTYPES[array.dtype], strides)


class _Thread:
    """The prepared products of a thread."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.stream = library.new("dnnl_stream_create", library.engine, _IN_ORDER)
        self.products: dict[Any, _Product] = {}
        self.memory = WorkSpace()


class OneDnnGemm:
    """See `Gemm`.

    Args:
        path: of the library

    Raises:
        OSError, ClusterError: see `Library`
    """

    name, is_recordable = "onednn", True
    operands = BFLOAT16
    terms_added_in_place = 0

    def __init__(self, path: Path) -> None:
        self._library = Library(path)
        self._local = threading.local()

    def multiply(self, a: Array, b: Array, out: Array, bias: Array | None = None) -> None:
        """See `Gemm.multiply`."""
        self._multiply(a, b, out, bias, adds=False)

    def multiply_add(self, a: Array, b: Array, out: Array, product: Array) -> None:  # noqa: ARG002
        """See `Gemm.multiply_add`."""
        self._multiply(a, b, out, None, adds=True)

    def implementation(self, a: Array, b: Array, out: Array) -> str:
        """Name of oneDNN's implementation for these operands."""
        with self._library.one_thread():
            return self._product(a, b, out, None, adds=False).implementation

    def _multiply(self, a: Array, b: Array, out: Array, bias: Array | None, *, adds: bool) -> None:
        if not out.size:
            return
        operands = (a, b, out) if bias is None else (a, b, out, bias)
        if (into := recording()) is not None:
            into.threads.add(self._library.one_thread)
            # A product is made for the number of threads that there may be now.
            with self._library.one_thread():
                if self not in into.prepared:
                    into.prepared[self] = _Thread(self._library)
                self._product(a, b, out, bias, adds=adds, of=into.prepared[self]).record(into, *operands)
            return
        with self._library.one_thread():
            self._product(a, b, out, bias, adds=adds)(*operands)

    def _product(
        self, a: Array, b: Array, out: Array, bias: Array | None, *, adds: bool, of: "_Thread | None" = None
    ) -> _Product:
        thread = of or getattr(self._local, "thread", None)
        if thread is None:
            thread = self._local.thread = _Thread(self._library)
        key = a.shape, a.strides, b.shape, b.strides, out.strides, out.dtype.num, bias is None, adds
        found: _Product | None = thread.products.get(key)
        if found is None:
            found = thread.products[key] = _Product(thread, a, b, out, bias, adds)
        return found
