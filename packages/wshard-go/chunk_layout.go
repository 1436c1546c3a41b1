package wshard

import (
	"bytes"
	"fmt"
	"strings"
)

// The properties that all chunks of an episode share: environment, timebase, and the type of each channel. Writing,
// joining and checking compare the same values. Implements "Joined chunks" of docs/specs/wshard.md.

// blockLayout is the declared type of one block. attributes is canonical JSON, without values that differ between
// chunks.
type blockLayout struct {
	id         string
	dtype      DType
	shape      []int
	rateHz     float64
	isEncoded  bool
	attributes []byte
}

type chunkLayout struct {
	envID  string
	kind   string
	rateHz float64
	names  []string
	blocks map[string]blockLayout
}

func newChunkLayout(envID string, timebase Timebase) *chunkLayout {
	return &chunkLayout{envID: envID, kind: timebase.kind(), rateHz: timebase.Hz(), blocks: map[string]blockLayout{}}
}

func (l *chunkLayout) put(name string, block blockLayout) {
	l.names = append(l.names, name)
	l.blocks[name] = block
}

// episodeLayout returns the layout of a chunk in memory.
func episodeLayout(e *Episode) (*chunkLayout, error) {
	out := newChunkLayout(e.EnvID, e.Timebase)
	for _, lane := range e.lanes() {
		if lane.channel.Undeclared || strings.HasPrefix(lane.block, "residual/") {
			continue
		}
		data := lane.channel.Data
		block, err := layoutOf(&ChannelSpec{lane.channel.id(), data.DType, data.StepShape(), lane.block, lane.channel.Attributes})
		if err != nil {
			return nil, err
		}
		out.put(lane.block, block)
	}
	for _, name := range seriesNames {
		if array := *e.series(name); array != nil {
			dtype := array.DType
			if spec := e.declaredSeries(name); spec != nil {
				dtype = spec.DType
			}
			out.put(name, blockLayout{id: name, dtype: dtype, shape: array.StepShape()})
		}
	}
	return out, nil
}

// fileLayout returns the layout of a chunk on disk, from its metadata.
func fileLayout(file *File) (*chunkLayout, error) {
	info, err := file.Info()
	if err != nil {
		return nil, err
	}
	if info == nil {
		return nil, corruptf("a chunk has no block %q", metaEpisode)
	}
	out := newChunkLayout(info.EnvID, info.Timebase)
	for _, entry := range file.entries {
		name := entry.Name
		lane, rest, isLane := laneOf(name)
		spec := info.Spec(name)
		if isSeries(name) {
			block := blockLayout{id: name, dtype: seriesDTypes[name]}
			if spec != nil {
				block.dtype, block.shape = spec.DType, spec.Shape
			}
			out.put(name, block)
			continue
		}
		if !isLane || lane == "residual" {
			continue
		}
		if spec == nil {
			found, err := findBlockType(name, entry.Size, info)
			if err != nil {
				return nil, err
			}
			if !found.IsDeclared {
				continue
			}
			spec = &ChannelSpec{rest, found.DType, found.Shape, name, nil}
		}
		block, err := layoutOf(spec)
		if err != nil {
			return nil, err
		}
		out.put(name, block)
	}
	return out, nil
}

func layoutOf(spec *ChannelSpec) (blockLayout, error) {
	rest := map[string]any{}
	for key, value := range spec.Attributes {
		if key != "frame_count" {
			rest[key] = value
		}
	}
	attributes, err := encodeJSON(rest)
	if spec.isEncoded() {
		return blockLayout{id: spec.ID, dtype: U8, isEncoded: true, attributes: attributes}, err
	}
	out := blockLayout{id: spec.ID, dtype: spec.DType, shape: spec.Shape, attributes: attributes}
	if rate, ok := floatOf(spec.Attributes["sampling_rate_hz"]); ok && rate > 0 {
		out.rateHz = rate
	}
	return out, err
}

// findDisagreement returns how a chunk differs from the first one, or nothing. Unless isStrict, attributes and encoded
// channels, which are not joined, may differ.
func findDisagreement(first, other *chunkLayout, isStrict bool) string {
	if other.envID != first.envID {
		return fmt.Sprintf("has the environment %q instead of %q", other.envID, first.envID)
	}
	if other.kind != first.kind || other.rateHz != first.rateHz {
		return fmt.Sprintf("has %s at %g Hz instead of %s at %g Hz", other.kind, other.rateHz, first.kind, first.rateHz)
	}
	for _, name := range append(append([]string{}, first.names...), other.names...) {
		left, inFirst := first.comparable(name, isStrict)
		right, inOther := other.comparable(name, isStrict)
		if inFirst != inOther || !left.equals(right, isStrict) {
			return fmt.Sprintf("has the block %q as %s instead of %s", name, other.format(name), first.format(name))
		}
	}
	return ""
}

func (l *chunkLayout) comparable(name string, isStrict bool) (blockLayout, bool) {
	block, ok := l.blocks[name]
	if !ok || (!isStrict && block.isEncoded) {
		return blockLayout{}, false
	}
	return block, true
}

func (b blockLayout) equals(other blockLayout, isStrict bool) bool {
	isSame := b.id == other.id && b.dtype == other.dtype && sameShape(b.shape, other.shape)
	isSame = isSame && b.rateHz == other.rateHz && b.isEncoded == other.isEncoded
	return isSame && (!isStrict || bytes.Equal(b.attributes, other.attributes))
}

func (l *chunkLayout) format(name string) string {
	block, ok := l.blocks[name]
	switch {
	case !ok:
		return "nothing"
	case block.isEncoded:
		return fmt.Sprintf("%s: encoded %s", block.id, block.attributes)
	}
	return fmt.Sprintf("%s: %s%v at %g Hz %s", block.id, block.dtype, block.shape, block.rateHz, block.attributes)
}
