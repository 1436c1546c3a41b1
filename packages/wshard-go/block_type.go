package wshard

import "strings"

// The type of a block. A declaration takes precedence; then the names that the format defines; otherwise the bytes
// are uint8. Nothing is inferred from a size alone. Implements "Block types" of docs/specs/wshard.md.

const (
	blockReward     = "reward"
	blockDone       = "done"
	blockTruncated  = "truncated"
	blockTicks      = "time/ticks"
	blockTimestamps = "time/timestamps_ns"
)

// seriesDTypes are the types of blocks with one value for each step.
var seriesDTypes = map[string]DType{
	blockReward: F32, blockDone: Bool, blockTruncated: Bool, blockTimestamps: I64, blockTicks: I32,
}

// isSeries reports whether an Episode has a field for the block.
func isSeries(name string) bool {
	return name == blockReward || name == blockDone || name == blockTruncated || name == blockTimestamps
}

// laneOf returns the prefix of a channel block and the rest of its name; false for other blocks.
func laneOf(name string) (string, string, bool) {
	lane, rest, _ := strings.Cut(name, "/")
	switch lane {
	case "signal", "action", "omen", "uncert", "residual":
		return lane, rest, rest != ""
	}
	return lane, rest, false
}

// BlockType is the type of a block: Rows steps of Shape. Without a declaration the bytes are uint8, one to a row.
type BlockType struct {
	DType      DType
	Shape      []int
	Rows       int
	IsDeclared bool
}

func (t *BlockType) stepBytes() int {
	return (&ChannelSpec{DType: t.DType, Shape: t.Shape}).stepBytes()
}

// findBlockType returns the type of a block; an error of the kind Corrupt if a declaration contradicts its size.
func findBlockType(name string, size int, info *Info) (BlockType, error) {
	raw := BlockType{U8, []int{}, size, false}
	if info == nil {
		return raw, nil
	}
	if spec := info.Spec(name); spec != nil {
		return declaredType(spec, size, info.Length)
	}
	if dtype, ok := seriesDTypes[name]; ok {
		return checkedType(name, BlockType{dtype, []int{}, info.Length, true}, size)
	}
	if dtype, shape, ok := defaultLane(name, size, info); ok {
		return BlockType{dtype, shape, info.Length, true}, nil
	}
	return raw, nil
}

// defaultLane returns the element type and step shape that follow from the name of an undeclared prediction.
func defaultLane(name string, size int, info *Info) (DType, []int, bool) {
	if strings.HasPrefix(name, "omen/latent_action/") {
		return latentType(F32, size, info.Length)
	}
	if strings.HasPrefix(name, "omen/latent_action_codebook/") {
		return latentType(I32, size, info.Length)
	}
	lane, rest, _ := strings.Cut(name, "/")
	if lane != "omen" && lane != "uncert" {
		return "", nil, false
	}
	// Channels and models may both contain slashes; the longest matching channel id counts.
	var spec *ChannelSpec
	for at := strings.LastIndexByte(rest, '/'); spec == nil && at > 0; at = strings.LastIndexByte(rest[:at], '/') {
		// A long name of slashes has many prefixes, but few of them are as long as an id.
		if info.idLengths[at] {
			spec = info.byID[rest[:at]]
		}
	}
	if spec == nil || hasOwnLength(spec.Attributes) || multiply(spec.stepBytes(), info.Length) != size {
		return "", nil, false
	}
	return spec.DType, spec.Shape, true
}

func latentType(dtype DType, size, length int) (DType, []int, bool) {
	if length == 0 || size == 0 || size%length != 0 || size/length%dtype.Size() != 0 {
		return "", nil, false
	}
	width := size / length / dtype.Size()
	if dtype == I32 && width == 1 {
		return dtype, []int{}, true
	}
	return dtype, []int{width}, true
}

func declaredType(spec *ChannelSpec, size, length int) (BlockType, error) {
	if spec.isEncoded() {
		return BlockType{U8, []int{}, size, true}, nil
	}
	if step := spec.stepBytes(); hasOwnLength(spec.Attributes) && step > 0 {
		length = size / step
	}
	return checkedType(spec.Block, BlockType{spec.DType, spec.Shape, length, true}, size)
}

func checkedType(name string, found BlockType, size int) (BlockType, error) {
	if expected := multiply(found.Rows, found.stepBytes()); expected != size {
		return BlockType{}, corruptf("block %q has %d bytes; %d steps of %s%v take %d", name, size, found.Rows, found.DType, found.Shape, expected)
	}
	return found, nil
}
