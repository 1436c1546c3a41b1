package wshard

import (
	"math"
	"math/big"
	"math/bits"
	"strings"
)

// Parsing of the metadata blocks, in all their forms. Lengths, shapes and counts are bounded before they are
// multiplied. Implements "Metadata" of docs/specs/wshard.md.

const (
	metaWShard     = "meta/wshard"
	metaEpisode    = "meta/episode"
	metaChannels   = "meta/channels"
	metaIdentity   = "meta/identity"
	metaProvenance = "meta/provenance"

	rounding = 1e-6
)

// The members of meta/episode that have a field of Info, and so cannot be attributes.
var knownMembers = map[string]bool{
	"episode_id": true, "id": true, "env_id": true, "length_T": true, "length_t": true, "timebase": true,
	"chunk_index": true, "total_chunks": true, "timestep_range": true, "metadata": true,
}

// ChannelSpec is the declaration of one block: its element type and the shape of one step.
type ChannelSpec struct {
	ID         string
	DType      DType
	Shape      []int
	Block      string
	Attributes map[string]any // further members, such as sampling_rate_hz or encoding
}

func (s *ChannelSpec) stepBytes() int {
	size, ok := sizeOf(s.Shape, s.DType)
	if !ok {
		return math.MaxInt64
	}
	return size
}

func (s *ChannelSpec) isEncoded() bool { return has(s.Attributes, "encoding") }

// hasOwnLength reports whether a channel may have another number of rows than steps.
func hasOwnLength(attributes map[string]any) bool {
	return has(attributes, "sampling_rate_hz") || has(attributes, "encoding")
}

func has(members map[string]any, name string) bool {
	_, ok := members[name]
	return ok
}

// specList holds declarations in file order, with an index by block.
type specList struct {
	list    []*ChannelSpec
	byBlock map[string]*ChannelSpec
}

func newSpecList(specs []*ChannelSpec) specList {
	out := specList{specs, make(map[string]*ChannelSpec, len(specs))}
	for _, spec := range specs {
		out.byBlock[spec.Block] = spec
	}
	return out
}

// Info is the content of the metadata blocks.
type Info struct {
	ID         string
	EnvID      string
	Length     int
	Timebase   Timebase
	Chunk      *ChunkPlace
	Metadata   map[string]any // belongs to the user
	Attributes map[string]any // further members of meta/episode

	channels  specList
	lanes     specList
	byID      map[string]*ChannelSpec
	idLengths map[int]bool
}

// Channels returns the declarations of observations and actions, in file order.
func (i *Info) Channels() []*ChannelSpec { return i.channels.list }

// Lanes returns the declarations of predictions whose type does not follow from their name.
func (i *Info) Lanes() []*ChannelSpec { return i.lanes.list }

// Spec returns the declaration of a block, or nil.
func (i *Info) Spec(block string) *ChannelSpec {
	if spec := i.channels.byBlock[block]; spec != nil {
		return spec
	}
	return i.lanes.byBlock[block]
}

func newInfo(length int, channels, lanes specList) *Info {
	info := &Info{Length: length, channels: channels, lanes: lanes}
	info.byID, info.idLengths = map[string]*ChannelSpec{}, map[int]bool{}
	for _, spec := range channels.list {
		if info.byID[spec.ID] == nil {
			info.byID[spec.ID] = spec
			info.idLengths[len(spec.ID)] = true
		}
	}
	return info
}

// parseInfo parses meta/episode, with meta/wshard and meta/channels if they exist.
func parseInfo(blocks map[string][]byte) (*Info, error) {
	data, ok := blocks[metaEpisode]
	if !ok {
		return nil, corruptf("there is no block %q", metaEpisode)
	}
	episode, err := decodeObject(data, metaEpisode)
	if err != nil {
		return nil, err
	}
	shard := map[string]any{}
	if data, ok := blocks[metaWShard]; ok {
		if shard, err = decodeObject(data, metaWShard); err != nil {
			return nil, err
		}
	}
	if err := checkVersion(shard); err != nil {
		return nil, err
	}
	length, ok := countOf(eitherOf(episode, "length_T", "length_t"), maxSteps)
	if !ok {
		return nil, corruptf("%s has no length from 0 to %d", metaEpisode, maxSteps)
	}
	name, isNamed := eitherOf(episode, "episode_id", "id").(string)
	env, isEnv := memberOr(episode, "env_id", "").(string)
	user, isUser := memberOr(episode, "metadata", map[string]any{}).(map[string]any)
	if !isNamed || !isEnv || !isUser {
		return nil, corruptf("%s has no proper episode_id, env_id or metadata", metaEpisode)
	}
	channels, lanes, err := parseChannels(blocks)
	if err != nil {
		return nil, err
	}
	info := newInfo(length, channels, lanes)
	info.ID, info.EnvID, info.Metadata, info.Attributes = name, env, user, map[string]any{}
	if info.Timebase, err = parseTimebases(episode["timebase"], shard["timebase"]); err != nil {
		return nil, err
	}
	if info.Chunk, err = parsePlace(episode, length); err != nil {
		return nil, err
	}
	for key, value := range episode {
		if !knownMembers[key] {
			info.Attributes[key] = value
		}
	}
	return info, nil
}

// eitherOf returns the first member that exists, even if it is null.
func eitherOf(members map[string]any, first, second string) any {
	if value, ok := members[first]; ok {
		return value
	}
	return members[second]
}

func memberOr(members map[string]any, name string, otherwise any) any {
	if value, ok := members[name]; ok {
		return value
	}
	return otherwise
}

func checkVersion(shard map[string]any) error {
	switch version := memberOr(shard, "version", memberOr(shard, "wshard_version", int64(1))); version {
	case int64(1), 1.0, "1", "0.1":
	default:
		return unsupportedf("%s has the version %v", metaWShard, version)
	}
	if order := memberOr(shard, "endianness", "little"); order != any("little") {
		return unsupportedf("%s has the endianness %v", metaWShard, order)
	}
	return nil
}

// parseTimebases prefers meta/episode, and takes the rate of meta/wshard if it agrees with the rounded dt_ns.
func parseTimebases(ofEpisode, ofShard any) (Timebase, error) {
	timebase, err := parseTimebase(ofEpisode, metaEpisode)
	if err != nil {
		return Timebase{}, err
	}
	fallback, err := parseTimebase(ofShard, metaWShard)
	if err != nil {
		return Timebase{}, err
	}
	if timebase == nil && fallback == nil {
		return Timebase{Type: Ticks}, nil
	}
	if timebase == nil {
		return *fallback, nil
	}
	if fallback != nil && timebase.Type == Ticks && fallback.Type == Ticks && timebase.TickHz == 0 && fallback.TickHz != 0 {
		if timebase.DtNS == 0 || math.Abs(float64(timebase.DtNS)*fallback.TickHz/1e9-1) < rounding {
			timebase.TickHz = fallback.TickHz
		}
	}
	return *timebase, nil
}

func parseTimebase(value any, what string) (*Timebase, error) {
	if value == nil {
		return nil, nil
	}
	refused := corruptf("%s has the timebase %v", what, value)
	members, ok := value.(map[string]any)
	if !ok {
		return nil, refused
	}
	kind, ok := memberOr(members, "type", Ticks).(string)
	if !ok || (kind != Ticks && kind != TimestampsNS) {
		return nil, refused
	}
	out := &Timebase{Type: kind}
	if rate := members["tick_hz"]; rate != nil {
		number, ok := floatOf(rate)
		if !ok || !(number >= 0) {
			return nil, refused
		}
		out.TickHz = number // some writers put 0 for an unknown rate
	}
	if step := members["dt_ns"]; step != nil {
		number, ok := countOf(step, math.MaxInt64)
		if !ok {
			return nil, refused
		}
		out.DtNS = int64(number)
	}
	return out, nil
}

// floatOf returns a number of a parsed document as float64.
func floatOf(value any) (float64, bool) {
	switch value := value.(type) {
	case int64:
		return float64(value), true
	case float64:
		return value, true
	case *big.Int:
		number, _ := new(big.Float).SetInt(value).Float64()
		return number, true
	}
	return 0, false
}

func parsePlace(episode map[string]any, length int) (*ChunkPlace, error) {
	place := ChunkPlace{Index: Unknown, Total: Unknown}
	for _, member := range []struct {
		name string
		into *int
	}{{"chunk_index", &place.Index}, {"total_chunks", &place.Total}} {
		value := episode[member.name]
		if value == nil {
			continue
		}
		count, ok := countOf(value, maxSteps)
		if !ok {
			return nil, corruptf("%s has %s = %v", metaEpisode, member.name, value)
		}
		*member.into = count
	}
	if value := episode["timestep_range"]; value != nil {
		first, last, ok := spanOf(value, 2*maxSteps)
		if !ok {
			return nil, corruptf("%s has the timestep_range %v", metaEpisode, value)
		}
		// The end is exclusive in old complete episodes, and inclusive in chunks.
		if last-first != length && last-first != length-1 {
			return nil, corruptf("%s has %d steps in the timestep_range %v", metaEpisode, length, value)
		}
		place.FirstStep = first
	}
	if place == (ChunkPlace{Index: Unknown, Total: Unknown}) {
		return nil, nil
	}
	return &place, nil
}

func spanOf(value any, most int64) (int, int, bool) {
	list, ok := value.([]any)
	if !ok || len(list) != 2 {
		return 0, 0, false
	}
	first, isFirst := countOf(list[0], most)
	last, isLast := countOf(list[1], most)
	return first, last, isFirst && isLast
}

func parseChannels(blocks map[string][]byte) (specList, specList, error) {
	none := newSpecList(nil)
	data, ok := blocks[metaChannels]
	if !ok {
		return none, none, nil
	}
	document, names, err := decodeMembers(data, metaChannels)
	if err != nil {
		return none, none, err
	}
	listed, ok := document["channels"]
	if !ok {
		// In the older form, block names are the keys.
		items := make([]any, 0, len(names))
		for _, name := range names {
			if name == "lanes" {
				continue
			}
			members, ok := document[name].(map[string]any)
			if !ok {
				return none, none, corruptf("%s has %v instead of the object of a channel", metaChannels, document[name])
			}
			item := map[string]any{"signal_block": name}
			for key, value := range members {
				item[key] = value
			}
			items = append(items, item)
		}
		listed = items
	}
	channels, err := parseSpecs(listed)
	if err != nil {
		return none, none, err
	}
	lanes, err := parseSpecs(memberOr(document, "lanes", []any{}))
	return channels, lanes, err
}

func parseSpecs(listed any) (specList, error) {
	items, ok := listed.([]any)
	if !ok || len(items) > maxChannels {
		return specList{}, corruptf("%s does not hold a list of channels", metaChannels)
	}
	specs := make([]*ChannelSpec, 0, len(items))
	for _, item := range items {
		members, ok := item.(map[string]any)
		if !ok {
			return specList{}, corruptf("%s has %v instead of the object of a channel", metaChannels, item)
		}
		spec, err := parseSpec(members)
		if err != nil {
			return specList{}, err
		}
		specs = append(specs, spec)
	}
	out := newSpecList(specs)
	if len(out.byBlock) != len(specs) {
		return specList{}, corruptf("%s describes one block twice", metaChannels)
	}
	return out, nil
}

// parseSpec parses one declaration of meta/channels.
func parseSpec(item map[string]any) (*ChannelSpec, error) {
	spec := &ChannelSpec{Shape: []int{}, Attributes: map[string]any{}}
	block, name := item["signal_block"], item["id"]
	if text, ok := block.(string); ok && name == nil {
		_, rest, _ := strings.Cut(text, "/")
		if name = any(rest); rest == "" {
			name = text
		}
	}
	if text, ok := name.(string); ok && block == nil {
		block = "signal/" + text
	}
	isNamed, isPlaced := false, false
	spec.ID, isNamed = name.(string)
	spec.Block, isPlaced = block.(string)
	if !isNamed || !isPlaced || spec.ID == "" || spec.Block == "" {
		return nil, corruptf("%s has a channel without a proper id: %v, %v", metaChannels, name, block)
	}
	dtype, _ := item["dtype"].(string)
	if spec.DType = DType(dtype); spec.DType.Size() == 0 {
		return nil, unsupportedf("channel %q has the dtype %v, which the format does not have", spec.ID, item["dtype"])
	}
	shape, ok := memberOr(item, "shape", []any{}).([]any)
	if !ok || len(shape) > maxDimensions {
		return nil, corruptf("channel %q has the shape %v", spec.ID, item["shape"])
	}
	for _, size := range shape {
		count, ok := countOf(size, maxDimension)
		if !ok {
			return nil, corruptf("channel %q has the shape %v", spec.ID, item["shape"])
		}
		spec.Shape = append(spec.Shape, count)
	}
	for key, value := range item {
		switch key {
		case "signal_block", "id", "dtype", "shape":
		default:
			spec.Attributes[key] = value
		}
	}
	return spec, nil
}

// multiply returns the product of two sizes, or the largest number if that overflows.
func multiply(a, b int) int {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high != 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int(low)
}
