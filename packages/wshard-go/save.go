package wshard

import (
	"bytes"
	"sort"
	"strings"
)

// Saving of an episode. Blocks that were in the file before keep their order. Implements "Writing" and "Rewriting" of
// docs/specs/wshard.md.

// Seal says whether Save seals a file.
type Seal uint8

// By default, an episode that was loaded from a sealed file is sealed again.
const (
	SealAsLoaded Seal = iota
	SealAlways
	SealNever
)

// Unaligned is the Alignment of blocks directly after one another.
const Unaligned = -1

const defaultAlignment = 64

// SaveOptions are options of Save. Every known reader accepts files written with the zero value.
type SaveOptions struct {
	Compression Compression
	// PerBlock overrides Compression by block name.
	PerBlock map[string]Compression
	// Alignment is 16, 32, 64 (also if 0) or Unaligned.
	Alignment int
	// TimeChunkSteps splits zstd blocks into chunks that windows read alone; use 0 for files to be exchanged.
	TimeChunkSteps int
	Seal           Seal
}

func alignmentOf(value int) (int, error) {
	switch {
	case value == 0:
		return defaultAlignment, nil
	case value == Unaligned:
		return 0, nil
	case value > 0 && isAlignment(value):
		return value, nil
	}
	return 0, badInputf("the alignment %d is not one of 16, 32, 64 and Unaligned", value)
}

// Save writes the episode, atomically and durably. It returns the identity if the file is sealed.
func Save(e *Episode, path string, options SaveOptions) (string, error) {
	alignment, err := alignmentOf(options.Alignment)
	if err == nil {
		err = options.Compression.check()
	}
	if err == nil {
		err = e.check()
	}
	if err != nil {
		return "", err
	}
	plans, err := planBlocks(e)
	if err == nil {
		err = checkSizes(plans, e)
	}
	if err == nil {
		err = options.apply(plans, e)
	}
	if err != nil {
		return "", err
	}
	isSealed := options.Seal == SealAlways || (options.Seal == SealAsLoaded && e.origin != nil && e.origin.isSealed)
	return writeContainer(path, plans, containerOptions{
		role: roleEpisode, alignment: alignment, defaultCodec: options.Compression.Codec, isSealed: isSealed,
	})
}

// apply sets the compression of each block.
func (o *SaveOptions) apply(plans []blockPlan, e *Episode) error {
	if o.TimeChunkSteps < 0 {
		return badInputf("TimeChunkSteps is %d, which is negative", o.TimeChunkSteps)
	}
	steps := map[string]int{} // the size of a step of each channel
	for _, lane := range e.lanes() {
		if data := lane.channel.Data; len(data.Data) > 0 {
			steps[lane.block] = len(data.Data) / data.Len()
		}
	}
	left := make(map[string]bool, len(o.PerBlock))
	for name := range o.PerBlock {
		left[name] = true
	}
	for i := range plans {
		plan := &plans[i]
		compression, isNamed := o.PerBlock[plan.name]
		if !isNamed {
			compression = o.Compression
		}
		delete(left, plan.name)
		if compression.Codec == Zstd && o.TimeChunkSteps > 0 && steps[plan.name] > 0 {
			plan.chunkBytes = multiply(o.TimeChunkSteps, steps[plan.name])
		}
		if isNamed || !strings.HasPrefix(plan.name, "meta/") {
			plan.compression = compression
		}
	}
	if len(left) > 0 {
		names := make([]string, 0, len(left))
		for name := range left {
			names = append(names, name)
		}
		sort.Strings(names)
		return badInputf("PerBlock names blocks that the episode does not have: %s", strings.Join(names, ", "))
	}
	return nil
}

// planBlocks returns all blocks in order: those of the original file, then new ones, provenance last.
func planBlocks(e *Episode) ([]blockPlan, error) {
	metadata, err := encodeMetadata(e)
	if err != nil {
		return nil, err
	}
	var plans []blockPlan
	seen := map[string]bool{metaWShard: true, metaEpisode: true, metaChannels: true, metaIdentity: true, metaProvenance: true}
	for _, block := range metadata {
		plans = append(plans, planBytes(block.name, block.data, contentJSON, 0))
	}
	for _, lane := range e.lanes() {
		seen[lane.block] = true
		plans = append(plans, planBytes(lane.block, e.stored(lane.block, lane.channel.Data), 0, 0))
	}
	for _, name := range seriesNames {
		if array := *e.series(name); array != nil {
			seen[name] = true
			plans = append(plans, planBytes(name, e.stored(name, array), 0, 0))
		}
	}
	isExtra := map[string]bool{}
	for _, block := range e.Extra {
		if seen[block.Name] {
			return nil, badInputf("the block %q cannot be in Extra; it has a field of its own, or occurs twice", block.Name)
		}
		seen[block.Name], isExtra[block.Name] = true, true
		plans = append(plans, planBytes(block.Name, block.Data, block.ContentType, block.Tags))
	}
	if e.Provenance != nil {
		data, err := encodeProvenance(e)
		if err != nil {
			return nil, err
		}
		plans = append(plans, planBytes(metaProvenance, data, contentJSON, 0))
	}
	return e.inOldOrder(plans, isExtra), nil
}

func (e *Episode) inOldOrder(plans []blockPlan, isExtra map[string]bool) []blockPlan {
	if e.origin == nil {
		return plans
	}
	at := make(map[string]int, len(e.origin.layout))
	for i, entry := range e.origin.layout {
		at[entry.Name] = i
	}
	for i := range plans {
		if before, ok := at[plans[i].name]; ok && !isExtra[plans[i].name] {
			plans[i].contentType, plans[i].tags = e.origin.layout[before].ContentType, e.origin.layout[before].Tags
		}
	}
	place := func(plan blockPlan) int {
		before, ok := at[plan.name]
		switch {
		case plan.name == metaProvenance:
			return len(at) + 1
		case ok:
			return before
		}
		return len(at)
	}
	sort.SliceStable(plans, func(i, j int) bool { return place(plans[i]) < place(plans[j]) })
	return plans
}

// stored returns the bytes of an array, with booleans as the file had them if they have not changed.
func (e *Episode) stored(name string, array *Array) []byte {
	if e.origin == nil {
		return array.Data
	}
	old, ok := e.origin.verbatim[name]
	if !ok || len(old) != len(array.Data) || array.DType != Bool {
		return array.Data
	}
	for i, value := range old {
		if (value != 0) != (array.Data[i] != 0) {
			return array.Data
		}
	}
	return old
}

func encodeProvenance(e *Episode) ([]byte, error) {
	if e.origin != nil {
		if old, ok := e.origin.verbatim[metaProvenance]; ok {
			before, err := decodeObject(old, metaProvenance)
			if err != nil {
				return nil, err
			}
			if isSame, err := sameJSON(before, e.Provenance); err != nil || isSame {
				return old, err
			}
		}
	}
	if err := checkProvenance(e.Provenance); err != nil {
		return nil, err
	}
	return encodeJSON(e.Provenance)
}

// checkSizes refuses a block that Load would reject, because its size contradicts its type.
func checkSizes(plans []blockPlan, e *Episode) error {
	blocks := map[string][]byte{}
	for _, plan := range plans {
		if plan.name == metaWShard || plan.name == metaEpisode || plan.name == metaChannels {
			var whole bytes.Buffer
			if err := plan.pieces(func(piece []byte) error { whole.Write(piece); return nil }); err != nil {
				return err
			}
			blocks[plan.name] = whole.Bytes()
		}
	}
	info, err := parseInfo(blocks)
	if err != nil {
		return err
	}
	hadTicks := false
	if e.origin != nil {
		for _, entry := range e.origin.layout {
			hadTicks = hadTicks || entry.Name == blockTicks
		}
	}
	for _, plan := range plans {
		prefix, _, isLane := laneOf(plan.name)
		isRead := isSeries(plan.name) || isLane || e.group(prefix) != nil
		// Loading does not interpret ticks, so a file that has them keeps them.
		if !isRead && (plan.name != blockTicks || hadTicks) {
			continue
		}
		if _, err := findBlockType(plan.name, plan.size, info); err != nil {
			return asBadInput(err, "no reader would accept the episode")
		}
	}
	return nil
}
