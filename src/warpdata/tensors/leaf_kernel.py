"""SHA-256 of many leaves at once, on the device that holds them: one thread for each leaf.

A single leaf is hashed more slowly than by a processor, thousands of them many times faster. The code is
compiled for the device at hand when it is first needed, by the compiler that comes with torch. Where there is no
such compiler, leaves are hashed on the way instead.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from warpdata.errors import StorageError
from warpdata.tensors.devices import torch_library
from warpdata.tensors.driver import Driver

__all__ = ["compile_kernel", "hash_leaves"]

_THREADS = 32
_SOURCE = r"""
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned char u8;

__constant__ u32 K[64] = {@CONSTANTS@};

#define ROTATE(x, n) __funnelshift_r(x, x, n)
#define SWAP(x) __byte_perm(x, 0, 0x0123)

__device__ __forceinline__ void digest_block(u32* h, u32* w) {
  u32 a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5], g = h[6], z = h[7];
  for (int base = 0; base < 64; base += 16) {
    #pragma unroll
    for (int t = 0; t < 16; t++) {
      if (base) {
        u32 x = w[(t + 1) & 15], y = w[(t + 14) & 15];
        w[t] += (ROTATE(x, 7) ^ ROTATE(x, 18) ^ (x >> 3)) + w[(t + 9) & 15]
              + (ROTATE(y, 17) ^ ROTATE(y, 19) ^ (y >> 10));
      }
      u32 one = z + (ROTATE(e, 6) ^ ROTATE(e, 11) ^ ROTATE(e, 25)) + ((e & f) ^ (~e & g)) + K[base + t] + w[t];
      u32 two = (ROTATE(a, 2) ^ ROTATE(a, 13) ^ ROTATE(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      z = g; g = f; f = e; e = d + one; d = c; c = b; b = a; a = one + two;
    }
  }
  h[0] += a; h[1] += b; h[2] += c; h[3] += d; h[4] += e; h[5] += f; h[6] += g; h[7] += z;
}

extern "C" __global__ void hash_leaves(const u64* places, const u64* sizes, u32* out, u64 count) {
  u64 leaf = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (leaf >= count) return;
  const u8* data = (const u8*)places[leaf];
  u64 size = sizes[leaf], full = size / 64, left = size % 64;
  u32 h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  u32 w[16];
  if ((places[leaf] & 7) == 0) {
    const uint2* words = (const uint2*)data;
    uint2 next[8];
    #pragma unroll
    for (int q = 0; q < 8; q++) if (full) next[q] = words[q];
    for (u64 block = 0; block < full; block++) {
      #pragma unroll
      for (int q = 0; q < 8; q++) { w[2 * q] = SWAP(next[q].x); w[2 * q + 1] = SWAP(next[q].y); }
      if (block + 1 < full) {
        #pragma unroll
        for (int q = 0; q < 8; q++) next[q] = words[8 * (block + 1) + q];
      }
      digest_block(h, w);
    }
  } else {
    for (u64 block = 0; block < full; block++) {
      const u8* at = data + 64 * block;
      #pragma unroll
      for (int q = 0; q < 16; q++)
        w[q] = (u32)at[4 * q] << 24 | (u32)at[4 * q + 1] << 16 | (u32)at[4 * q + 2] << 8 | at[4 * q + 3];
      digest_block(h, w);
    }
  }
  u8 tail[128];
  for (int q = 0; q < 128; q++) tail[q] = q < left ? data[64 * full + q] : 0;
  tail[left] = 0x80;
  int blocks = left < 56 ? 1 : 2;
  for (int q = 0; q < 8; q++) tail[64 * blocks - 1 - q] = (u8)(size * 8 >> (8 * q));
  for (int block = 0; block < blocks; block++) {
    #pragma unroll
    for (int q = 0; q < 16; q++) {
      const u8* at = tail + 64 * block + 4 * q;
      w[q] = (u32)at[0] << 24 | (u32)at[1] << 16 | (u32)at[2] << 8 | at[3];
    }
    digest_block(h, w);
  }
  for (int q = 0; q < 8; q++) out[8 * leaf + q] = SWAP(h[q]);
}
"""


def hash_leaves(driver: Driver, image: bytes, places: list[tuple[int, int]], stream: Any) -> list[bytes]:
    """SHA-256 of (address, size) in a device's memory, after everything that `stream` has to do before."""
    torch = torch_library()
    function = _function(driver, image)
    with torch.cuda.stream(stream):
        table = torch.tensor(list(zip(*places, strict=True)), dtype=torch.int64).to(stream.device)
        out = torch.empty((len(places), 8), dtype=torch.int32, device=stream.device)
        arguments = [table[0].data_ptr(), table[1].data_ptr(), out.data_ptr(), len(places)]
        driver.launch(function, -(-len(places) // _THREADS), _THREADS, stream.cuda_stream, arguments)
        told = out.cpu().numpy().tobytes()
    return [told[at : at + 32] for at in range(0, len(told), 32)]


@functools.cache
def compile_kernel(architecture: str) -> bytes | None:
    """Device code for an architecture like `sm_90`; `None` where there is no compiler."""
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
        options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
        if library.nvrtcCompileProgram(program, 1, options) != 0:
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


def _function(driver: Driver, image: bytes) -> int:
    key = (driver.context, image)
    if key not in _FUNCTIONS:
        _FUNCTIONS[key] = driver.load_function(image, "hash_leaves")
    if not _FUNCTIONS[key]:
        raise StorageError("the device has no code to hash leaves with")
    return _FUNCTIONS[key]


def _constants() -> list[int]:
    """The first 32 bits behind the point of the cube roots of the first 64 primes."""
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
