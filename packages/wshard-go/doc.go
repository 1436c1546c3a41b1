// Package wshard reads and writes WShard: one episode of a robot or an agent in one file.
//
// [Open] reads the header and the index of a file, and then exactly the requested blocks or windows of steps.
// [Load] reads a whole episode into memory, and [Save] writes it. [StreamWriter] records an episode step by step
// through a journal, so that a crash loses only steps that were not flushed; [Recover] turns a journal into a file.
// [ChunkedWriter] splits a long episode into several files with a manifest, and [OpenJoined] reads them as one.
//
// The format is defined in docs/specs/wshard.md of the warpdata repository. Every size in a file is compared with the
// file before memory is allocated, and a damaged file is an [*Error] with the kind [Corrupt]. The package needs a
// 64-bit system.
package wshard

// A shape or a number of steps may exceed 32 bits, so a build for a 32-bit system fails here.
const _ = uint(1 << 62)
