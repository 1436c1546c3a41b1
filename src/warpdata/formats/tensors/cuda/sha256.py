"""SHA-256 of many leaves in parallel, on the device that holds them.

A device hashes one leaf more slowly than a core, and hundreds of leaves many times faster. A block of a leaf depends
on the block before it, but its message schedule does not. So sixteen lanes of a warp expand sixteen blocks in
parallel, and then do the rounds of all of them together. NVRTC, which comes with torch, compiles the kernel on first
use. Without NVRTC, the CPU hashes the leaves.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from warpdata.errors import StorageError
from warpdata.formats.tensors.cuda.driver import CudaDriver
from warpdata.formats.tensors.cuda.torch_interop import torch_library

__all__ = ["DeviceSha256", "compile_kernel"]

_WARP = 32
_LANES = 16
_SOURCE = r"""
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned char u8;

#define GROUPS (32 / LANES)
#define STEP 17
#define LITTLE 0x0123

__constant__ u32 K[64] = {@CONSTANTS@};

#define ROTATE(x, n) __funnelshift_r(x, x, n)

// Adds by multiplying with a 1 that the compiler does not know, because the unit for shifts and logic is busy.
__device__ __forceinline__ u32 plus(u32 x, u32 y, u32 one) {
  u32 sum;
  asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(x), "r"(one), "r"(y));
  return sum;
}

// The end of a leaf: its last bytes, a 1 bit, zeros, and in the last block the length.
__device__ __noinline__ void pad(u32* words, const u8* data, u64 size, u64 block, u64 blocks) {
  for (int q = 0; q < 16; q++) {
    u32 word = 0;
    for (int r = 0; r < 4; r++) {
      u64 at = 64 * block + 4 * q + r;
      u32 one = at < size ? data[at] : at == size ? 0x80 : 0;
      if (block + 1 == blocks && q >= 14) one = (u32)(size * 8 >> (8 * (63 - 4 * q - r))) & 255;
      word |= one << (8 * r);
    }
    words[q] = word;
  }
}

// Loads words from any address. Returns the selector that makes a big-endian word of two neighbours.
__device__ __forceinline__ u32 fetch(u32* words, const u8* data, u64 size, u64 block, u64 blocks) {
  if (block >= blocks) return LITTLE;
  if (64 * block + 64 > size) {
    u32 last[16];
    pad(last, data, size, block, blocks);
    #pragma unroll
    for (int q = 0; q < 16; q++) words[q] = last[q];
    return LITTLE;
  }
  const u8* at = data + 64 * block;
  u32 shift = (u32)((u64)at & 3);
  if (((u64)at & 15) == 0) {
    #pragma unroll
    for (int q = 0; q < 4; q++) {
      uint4 four = __ldg((const uint4*)at + q);
      words[4 * q] = four.x; words[4 * q + 1] = four.y; words[4 * q + 2] = four.z; words[4 * q + 3] = four.w;
    }
  } else {
    const u32* from = (const u32*)(at - shift);
    #pragma unroll
    for (int q = 0; q < 16; q++) words[q] = __ldg(from + q);
    if (shift) words[16] = __ldg(from + 16);
  }
  return LITTLE + 0x1111 * shift;
}

#define ROUND(a, b, c, d, e, f, g, h, w) { \
  u32 high = ROTATE(a, 2) ^ ROTATE(a, 13) ^ ROTATE(a, 22), low = ROTATE(e, 6) ^ ROTATE(e, 11) ^ ROTATE(e, 25); \
  u32 both = plus(d, plus(h, w, one), one), less = plus(d, (a & b) ^ (a & c) ^ (b & c), minus); \
  d = plus(both, (e & f) ^ (~e & g), one) + low; \
  h = d + high + less; }

#define EIGHT(p, q) \
  ROUND(a, b, c, d, e, f, g, h, p.x) ROUND(h, a, b, c, d, e, f, g, p.y) \
  ROUND(g, h, a, b, c, d, e, f, p.z) ROUND(f, g, h, a, b, c, d, e, p.w) \
  ROUND(e, f, g, h, a, b, c, d, q.x) ROUND(d, e, f, g, h, a, b, c, q.y) \
  ROUND(c, d, e, f, g, h, a, b, q.z) ROUND(b, c, d, e, f, g, h, a, q.w)

extern "C" __global__ void __launch_bounds__(32)
hash_leaves(const ulonglong2* places, u32* out, u64 count, u64 unit) {
  __shared__ uint4 expanded[(32 + GROUPS) * STEP];
  const u32 one = (u32)unit, minus = 0u - one;
  u32 lane = threadIdx.x, turn = lane / GROUPS, group = lane % GROUPS;
  u64 leaf = (u64)blockIdx.x * GROUPS + group;
  bool live = leaf < count;
  const u8* data = live ? (const u8*)places[leaf].x : 0;
  u64 size = live ? places[leaf].y : 0, blocks = live ? (size + 72) / 64 : 0, most = blocks;
  for (int q = 16; q; q /= 2) {
    u64 other = __shfl_xor_sync(~0u, most, q);
    most = other > most ? other : most;
  }
  u32 a = 0x6a09e667, b = 0xbb67ae85, c = 0x3c6ef372, d = 0xa54ff53a;
  u32 e = 0x510e527f, f = 0x9b05688c, g = 0x1f83d9ab, h = 0x5be0cd19;
  u32 next[17] = {};
  u32 order = fetch(next, data, size, turn, blocks);
  for (u64 base = 0; base < most; base += LANES) {
    u32 w[16];
    #pragma unroll
    for (int q = 0; q < 16; q++) w[q] = __byte_perm(next[q], next[q + 1], order);
    order = fetch(next, data, size, base + LANES + turn, blocks);
    #pragma unroll
    for (int t = 0; t < 64; t += 4) {
      u32 four[4];
      #pragma unroll
      for (int s = 0; s < 4; s++) {
        int q = (t + s) & 15;
        if (t >= 16) {
          u32 x = w[(q + 1) & 15], y = w[(q + 14) & 15];
          x = ROTATE(x, 7) ^ ROTATE(x, 18) ^ (x >> 3);
          y = ROTATE(y, 17) ^ ROTATE(y, 19) ^ (y >> 10);
          w[q] = plus(plus(w[q], w[(q + 9) & 15], one), plus(x, y, one), one);
        }
        four[s] = w[q] + K[t + s];
      }
      expanded[lane * STEP + t / 4] = make_uint4(four[0], four[1], four[2], four[3]);
    }
    __syncwarp();
    u32 here = base >= blocks ? 0 : blocks - base < LANES ? (u32)(blocks - base) : LANES;
    const uint4* from = expanded + group * STEP;
    uint4 u = from[0], v = from[1], x, y;
    for (u32 block = 0; block < here; block++, from += GROUPS * STEP) {
      u32 A = a, B = b, C = c, D = d, E = e, F = f, G = g, H = h;
      #pragma unroll
      for (int q = 0; q < 16; q += 4) {
        x = from[q + 2]; y = from[q + 3];
        EIGHT(u, v)
        u = from[q < 12 ? q + 4 : GROUPS * STEP]; v = from[q < 12 ? q + 5 : GROUPS * STEP + 1];
        EIGHT(x, y)
      }
      a += A; b += B; c += C; d += D; e += E; f += F; g += G; h += H;
    }
    __syncwarp();
  }
  if (live && turn == 0) {
    u32 digest[8] = {a, b, c, d, e, f, g, h};
    for (int q = 0; q < 8; q++) out[8 * leaf + q] = __byte_perm(digest[q], 0, LITTLE);
  }
}
"""


class DeviceSha256:
    """SHA-256 of up to `count` places in device memory, in batches on parallel streams.

    A batch starts after everything that was enqueued on the streams `after`. Keep the object until `streams` are done.
    """

    def __init__(
        self, driver: CudaDriver, image: bytes, count: int, *, streams: Sequence[Any], after: Sequence[Any]
    ) -> None:
        torch = torch_library()
        self._driver, self._streams, self._after = driver, streams, after
        self._function = _function(driver, image)
        self._started = self._batches = 0
        # The device reads this in host memory: a copy would wait for the other work of its stream.
        self._places = torch.empty((count, 2), dtype=torch.int64, pin_memory=True)
        with torch.cuda.stream(streams[0]):
            self._out = torch.empty((count, 8), dtype=torch.int32, device=streams[0].device)
        streams[0].synchronize()

    def start(self, places: Sequence[tuple[int, int]]) -> None:
        """Hash (address, size) pairs. Not safe for concurrent calls."""
        stream = self._streams[self._batches % len(self._streams)]
        first, count = self._started, len(places)
        self._places[first : first + count] = torch_library().tensor(places, dtype=torch_library().int64)
        for other in self._after:
            stream.wait_stream(other)
        arguments = [self._places[first].data_ptr(), self._out[first].data_ptr(), count, 1]
        self._driver.launch(self._function, -(-count * _LANES // _WARP), _WARP, stream.cuda_stream, arguments)
        self._started, self._batches = first + count, self._batches + 1

    def digests(self) -> list[bytes]:
        """Wait for all batches, and return their digests in order."""
        for stream in self._streams:
            stream.synchronize()
        digests = self._out[: self._started].cpu().numpy().tobytes()
        return [digests[at : at + 32] for at in range(0, len(digests), 32)]


@functools.cache
def compile_kernel(architecture: str) -> bytes | None:
    """Return device code for an architecture such as `sm_90`; None without a compiler."""
    library = _compiler()
    if library is None:
        return None
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    source = _SOURCE.replace("@CONSTANTS@", ", ".join(f"{value}u" for value in _constants()))
    made = library.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"leaves.cu", 0, ctypes.c_void_p(), ctypes.c_void_p()
    )
    if made != 0:
        return None
    try:
        options = (ctypes.c_char_p * 2)(f"--gpu-architecture={architecture}".encode(), f"-DLANES={_LANES}".encode())
        if library.nvrtcCompileProgram(program, len(options), options) != 0:
            return None
        if library.nvrtcGetCUBINSize(program, ctypes.byref(size)) != 0 or not size.value:
            return None
        image = ctypes.create_string_buffer(size.value)
        return image.raw if library.nvrtcGetCUBIN(program, image) == 0 else None
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _compiler() -> Any | None:
    version = torch_library().version.cuda
    for name in (f"libnvrtc.so.{str(version).split('.', maxsplit=1)[0]}", "libnvrtc.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


_FUNCTIONS: dict[tuple[int, bytes], int] = {}


def _function(driver: CudaDriver, image: bytes) -> int:
    key = (driver.context, image)
    if key not in _FUNCTIONS:
        _FUNCTIONS[key] = driver.load_function(image, "hash_leaves")
    if not _FUNCTIONS[key]:
        raise StorageError("the CUDA driver did not load the hash kernel")
    return _FUNCTIONS[key]


def _constants() -> list[int]:
    """Return the first 32 fractional bits of the cube roots of the first 64 primes."""
    primes: list[int] = []
    candidate = 2
    while len(primes) < 64:
        if all(candidate % prime for prime in primes):
            primes.append(candidate)
        candidate += 1
    return [_cube_root(prime << 96) & 0xFFFFFFFF for prime in primes]


def _cube_root(value: int) -> int:
    low, high = 0, 1 << (value.bit_length() // 3 + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**3 <= value else (low, middle)
    return low
