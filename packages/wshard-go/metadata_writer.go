package wshard

import (
	"math"
	"sort"
	"strings"
)

// Encoding of the metadata blocks: the newest form, or the old bytes if their content did not change. Implements
// "Metadata" and "Rewriting" of docs/specs/wshard.md.

var newestForm = map[string]any{"endianness": "little", "format": "W-SHARD", "residual_edges": "pad", "version": "0.1"}

// namedBytes is a block with its name.
type namedBytes struct {
	name string
	data []byte
}

// encodeMetadata encodes the metadata blocks, and refuses content that no reader accepts.
func encodeMetadata(e *Episode) ([]namedBytes, error) {
	verbatim := map[string][]byte{}
	if e.origin != nil && e.origin.verbatim != nil {
		verbatim = e.origin.verbatim
	}
	var before *Info
	if _, ok := verbatim[metaEpisode]; ok {
		var err error
		if before, err = parseInfo(verbatim); err != nil {
			return nil, err
		}
	}
	out, err := metadataBlocks(e, verbatim, before)
	if err == nil {
		_, err = parseInfo(asMap(out))
	}
	if err != nil {
		return nil, asBadInput(err, "the episode cannot be described")
	}
	return out, nil
}

func asMap(blocks []namedBytes) map[string][]byte {
	out := make(map[string][]byte, len(blocks))
	for _, block := range blocks {
		out[block.name] = block.data
	}
	return out
}

func metadataBlocks(e *Episode, verbatim map[string][]byte, before *Info) ([]namedBytes, error) {
	var out []namedBytes
	keep := func(name string) {
		if data, ok := verbatim[name]; ok {
			out = append(out, namedBytes{name, data})
		}
	}
	isSame, err := isUnchanged(before, e)
	if err != nil {
		return nil, err
	}
	if isSame {
		keep(metaWShard)
		keep(metaEpisode)
	} else {
		document, err := episodeDocument(e)
		if err != nil {
			return nil, err
		}
		if out, err = appendDocuments(out, namedDocument{metaWShard, newestForm}, namedDocument{metaEpisode, document}); err != nil {
			return nil, err
		}
	}
	channels, lanes := describeChannels(e, before)
	if before != nil {
		isSame, err := sameSpecs(before.channels, channels)
		if err == nil && isSame {
			isSame, err = sameSpecs(before.lanes, lanes)
		}
		if err != nil {
			return nil, err
		}
		if isSame {
			keep(metaChannels)
			return out, nil
		}
	}
	document, err := channelsDocument(channels, lanes, verbatim[metaChannels])
	if err != nil {
		return nil, err
	}
	return appendDocuments(out, namedDocument{metaChannels, document})
}

type namedDocument struct {
	name     string
	document map[string]any
}

func appendDocuments(out []namedBytes, documents ...namedDocument) ([]namedBytes, error) {
	for _, one := range documents {
		data, err := encodeJSON(one.document)
		if err != nil {
			return nil, err
		}
		out = append(out, namedBytes{one.name, data})
	}
	return out, nil
}

// newMetadata encodes the three blocks of a new episode, from its meta/episode document.
func newMetadata(document map[string]any, length int, channels, lanes []*ChannelSpec) ([]namedBytes, error) {
	listed := newSpecList(channels)
	info := newInfo(length, listed, newSpecList(nil))
	var needed []*ChannelSpec
	for _, spec := range lanes {
		if mustDeclare(spec.Block, spec, info) {
			needed = append(needed, spec)
		}
	}
	declared, err := channelsDocument(uniqueSpecs(channels), uniqueSpecs(needed), nil)
	if err != nil {
		return nil, err
	}
	return appendDocuments(nil, namedDocument{metaWShard, newestForm}, namedDocument{metaEpisode, document},
		namedDocument{metaChannels, declared})
}

// uniqueSpecs keeps the last of several declarations of one block, at the place of the first.
func uniqueSpecs(specs []*ChannelSpec) specList {
	byBlock := newSpecList(specs).byBlock
	var out []*ChannelSpec
	seen := map[string]bool{}
	for _, spec := range specs {
		if !seen[spec.Block] {
			seen[spec.Block] = true
			out = append(out, byBlock[spec.Block])
		}
	}
	return specList{out, byBlock}
}

// episodeDocument returns meta/episode in its newest form.
func episodeDocument(e *Episode) (map[string]any, error) {
	if e.Length < 0 || e.Length > maxSteps {
		return nil, badInputf("the episode has %d steps; 0 to %d are possible", e.Length, maxSteps)
	}
	document, taken := map[string]any{}, []string{}
	for key, value := range e.Attributes {
		if knownMembers[key] {
			taken = append(taken, key)
		}
		document[key] = value
	}
	if len(taken) > 0 {
		sort.Strings(taken)
		return nil, badInputf("attributes cannot hold %s, which have fields of their own", strings.Join(taken, ", "))
	}
	timebase, err := timebaseDocument(e.Timebase)
	if err != nil {
		return nil, err
	}
	document["episode_id"], document["env_id"], document["length_T"], document["timebase"] = e.ID, e.EnvID, e.Length, timebase
	if place := e.Chunk; place != nil {
		if place.Index != Unknown {
			document["chunk_index"] = place.Index
		}
		if place.Total != Unknown {
			document["total_chunks"] = place.Total
		}
		if e.Length > 0 {
			document["timestep_range"] = []int{place.FirstStep, place.FirstStep + e.Length - 1}
		}
	}
	if len(e.Metadata) > 0 {
		document["metadata"] = e.Metadata
	}
	return document, nil
}

func timebaseDocument(timebase Timebase) (map[string]any, error) {
	kind := timebase.kind()
	if kind == TimestampsNS {
		return map[string]any{"type": kind}, nil
	}
	if kind != Ticks {
		return nil, badInputf("the timebase %q is neither ticks nor timestamps_ns", kind)
	}
	rate, step := timebase.TickHz, timebase.DtNS
	if !(rate >= 0) || math.IsInf(rate, 0) || step < 0 {
		return nil, badInputf("the timebase %+v has a rate that is not positive", timebase)
	}
	document := map[string]any{"type": Ticks}
	if rate > 0 {
		document["tick_hz"] = rate
		if step == 0 {
			rounded := math.RoundToEven(1e9 / rate)
			if rounded >= 1<<63 {
				return nil, badInputf("the rate %g has no step length in nanoseconds", rate)
			}
			step = int64(rounded)
		}
	}
	if step > 0 {
		document["dt_ns"] = step
	}
	return document, nil
}

func isUnchanged(before *Info, e *Episode) (bool, error) {
	if before == nil || before.ID != e.ID || before.EnvID != e.EnvID || before.Length != e.Length {
		return false, nil
	}
	timebase := e.Timebase
	timebase.Type = timebase.kind()
	if before.Timebase != timebase || (before.Chunk == nil) != (e.Chunk == nil) || (e.Chunk != nil && *before.Chunk != *e.Chunk) {
		return false, nil
	}
	isSame, err := sameJSON(before.Metadata, e.Metadata)
	if err != nil || !isSame {
		return false, err
	}
	return sameJSON(before.Attributes, e.Attributes)
}

// orderedSpecs is a map of declarations that keeps the order of its keys.
type orderedSpecs struct {
	names   []string
	byBlock map[string]*ChannelSpec
}

func (o *orderedSpecs) put(name string, spec *ChannelSpec) {
	if o.byBlock == nil {
		o.byBlock = map[string]*ChannelSpec{}
	}
	if o.byBlock[name] == nil {
		o.names = append(o.names, name)
	}
	o.byBlock[name] = spec
}

func (o *orderedSpecs) list() specList {
	out := specList{nil, o.byBlock}
	for _, name := range o.names {
		out.list = append(out.list, o.byBlock[name])
	}
	return out
}

// describeChannels returns declarations of channels in their old order, and of lanes whose type does not follow from
// their name.
func describeChannels(e *Episode, before *Info) (specList, specList) {
	var old, found, channels, lanes orderedSpecs
	if before == nil {
		before = newInfo(e.Length, newSpecList(nil), newSpecList(nil))
	}
	// If a block is declared as both, the channel takes precedence.
	for _, spec := range append(append([]*ChannelSpec{}, before.channels.list...), before.lanes.list...) {
		if old.byBlock[spec.Block] == nil {
			old.put(spec.Block, spec)
		}
	}
	putUnused(e, &old, &found)
	for _, lane := range e.lanes() {
		if !lane.channel.Undeclared {
			found.put(lane.block, describeChannel(lane, old.byBlock[lane.block]))
		}
	}
	for _, name := range seriesNames {
		if spec := e.declaredSeries(name); spec != nil {
			found.put(name, spec)
		}
	}
	var names []string
	for _, name := range old.names {
		if found.byBlock[name] != nil {
			names = append(names, name)
		}
	}
	for _, name := range found.names {
		if old.byBlock[name] == nil {
			names = append(names, name)
		}
	}
	oldChannels, oldLanes := before.channels.byBlock, before.lanes.byBlock
	for _, name := range names {
		isChannel := strings.HasPrefix(name, "signal/") || strings.HasPrefix(name, "action/")
		if oldChannels[name] != nil || (oldLanes[name] == nil && isChannel) {
			channels.put(name, found.byBlock[name])
		}
	}
	info := newInfo(e.Length, channels.list(), newSpecList(nil))
	for _, spec := range before.lanes.list {
		if channels.byBlock[spec.Block] != nil {
			lanes.put(spec.Block, spec)
		} else if found.byBlock[spec.Block] != nil {
			lanes.put(spec.Block, found.byBlock[spec.Block])
		}
	}
	for _, name := range names {
		if channels.byBlock[name] != nil || lanes.byBlock[name] != nil || strings.HasPrefix(name, "residual/") {
			continue
		}
		if isSeries(name) || mustDeclare(name, found.byBlock[name], info) {
			lanes.put(name, found.byBlock[name])
		}
	}
	return channels.list(), lanes.list()
}

// putUnused keeps declarations of blocks that are no channel of the episode, such as blocks absent from the file.
func putUnused(e *Episode, old, found *orderedSpecs) {
	inFile := map[string]bool{}
	if e.origin != nil {
		for _, entry := range e.origin.layout {
			inFile[entry.Name] = true
		}
	}
	for _, name := range old.names {
		_, _, isLane := laneOf(name)
		isUsed := inFile[name] && isLane
		isPresent := isSeries(name) && *e.series(name) != nil
		if !isUsed && !isPresent {
			found.put(name, old.byBlock[name])
		}
	}
}

func describeChannel(lane lane, old *ChannelSpec) *ChannelSpec {
	channel := lane.channel
	spec := &ChannelSpec{channel.id(), channel.Data.DType, channel.Data.StepShape(), lane.block, channel.Attributes}
	if channel.isEncoded() {
		// The declaration describes decoded frames, which the stored bytes do not show.
		if old != nil {
			kept := *old
			kept.Attributes = channel.Attributes
			return &kept
		}
		spec.Shape = []int{}
		if channel.Decoded != nil {
			spec.DType, spec.Shape = channel.Decoded.DType, channel.Decoded.Shape
		}
	}
	return spec
}

// mustDeclare reports whether the type or the id of a prediction does not follow from its name.
func mustDeclare(name string, spec *ChannelSpec, info *Info) bool {
	dtype, shape, ok := defaultLane(name, multiply(spec.stepBytes(), info.Length), info)
	_, rest, _ := strings.Cut(name, "/")
	return !ok || dtype != spec.DType || !sameShape(shape, spec.Shape) || len(spec.Attributes) > 0 || spec.ID != rest
}

func sameSpecs(before, now specList) (bool, error) {
	if len(before.list) != len(now.list) {
		return false, nil
	}
	for i, left := range before.list {
		right := now.list[i]
		if left.Block != right.Block || left.ID != right.ID || left.isEncoded() != right.isEncoded() {
			return false, nil
		}
		if !left.isEncoded() && (left.DType != right.DType || !sameShape(left.Shape, right.Shape)) {
			return false, nil
		}
		if isSame, err := sameJSON(left.Attributes, right.Attributes); err != nil || !isSame {
			return false, err
		}
	}
	return true, nil
}

func channelsDocument(channels, lanes specList, old []byte) (map[string]any, error) {
	document := map[string]any{}
	if old != nil {
		before, err := decodeObject(old, metaChannels)
		if err != nil {
			return nil, err
		}
		// Unknown members exist beside the list only; in the older form every member is a channel.
		if has(before, "channels") {
			document = before
			delete(document, "lanes")
		}
	}
	declare := func(name string, specs specList) error {
		items := []any{}
		for _, spec := range specs.list {
			item := spec.document()
			if err := checkSpec(item); err != nil {
				return err
			}
			items = append(items, item)
		}
		document[name] = items
		return nil
	}
	if err := declare("channels", channels); err != nil {
		return nil, err
	}
	if len(lanes.list) > 0 {
		if err := declare("lanes", lanes); err != nil {
			return nil, err
		}
	}
	return document, nil
}

// document returns the declaration as in meta/channels.
func (s *ChannelSpec) document() map[string]any {
	item := map[string]any{}
	for key, value := range s.Attributes {
		item[key] = value
	}
	shape := make([]any, len(s.Shape))
	for i, size := range s.Shape {
		shape[i] = int64(size)
	}
	item["id"], item["dtype"], item["shape"], item["signal_block"] = s.ID, string(s.DType), shape, s.Block
	return item
}

func checkSpec(item map[string]any) error {
	_, err := parseSpec(item)
	return err
}
