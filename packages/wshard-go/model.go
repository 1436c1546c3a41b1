package wshard

// Episodes in memory. A loaded episode remembers its file, so that saving it changes only what the caller changed.

// Kinds of a Timebase.
const (
	Ticks        = "ticks"         // steps at a fixed rate
	TimestampsNS = "timestamps_ns" // a timestamp for each step
)

// Unknown is the Index or Total of a ChunkPlace that the file does not state.
const Unknown = -1

// Timebase is the time axis of an episode. A TickHz or DtNS of 0 is absent; an empty Type means Ticks.
type Timebase struct {
	Type   string
	TickHz float64
	DtNS   int64
}

// Hz returns the steps per second, or 0 if they are unknown. TickHz takes precedence over DtNS, which is rounded.
func (t Timebase) Hz() float64 {
	switch {
	case t.kind() != Ticks:
		return 0
	case t.TickHz != 0:
		return t.TickHz
	case t.DtNS != 0:
		return 1e9 / float64(t.DtNS)
	}
	return 0
}

func (t Timebase) kind() string {
	if t.Type == "" {
		return Ticks
	}
	return t.Type
}

// ChunkPlace is the position of a chunk in its episode. FirstStep counts from the start of the whole episode.
type ChunkPlace struct {
	Index     int // or Unknown
	Total     int // or Unknown
	FirstStep int
}

// Channel is one stream of values. Its block is the prefix of its group, a slash, and Name.
type Channel struct {
	Name string
	ID   string // the id in the declaration; empty means Name
	Data *Array
	// Attributes are further members of the declaration, such as modality or sampling_rate_hz.
	Attributes map[string]any
	// Undeclared channels have their bytes as uint8, such as residuals.
	Undeclared bool
	// Decoded is the declared type of one decoded frame of an encoded channel.
	Decoded *FrameType
}

// FrameType is the element type and shape of a decoded frame.
type FrameType struct {
	DType DType
	Shape []int
}

func (c *Channel) id() string {
	if c.ID == "" {
		return c.Name
	}
	return c.ID
}

func (c *Channel) isEncoded() bool { return has(c.Attributes, "encoding") }

// Channels are the channels of one group, in the order of their blocks.
type Channels []*Channel

// Get returns the channel of this name, or nil.
func (c Channels) Get(name string) *Channel {
	for _, channel := range c {
		if channel.Name == name {
			return channel
		}
	}
	return nil
}

// RawBlock holds bytes that are stored without interpretation, with the content type and tags of their index entry.
type RawBlock struct {
	Name        string
	Data        []byte
	ContentType uint16
	Tags        uint16
}

// Episode is a bundle of observations, actions, rewards and endings. Arrays that are nil are absent.
//
// Omens are named channel/model, Uncertainties channel/model/type, and Residuals channel/sign2nddiff (packed bits, see
// UnpackResidual). Rewards are F32, Terminations and Truncations Bool, TimestampsNS I64, each of one axis.
type Episode struct {
	ID            string
	Length        int
	EnvID         string
	Timebase      Timebase
	Observations  Channels
	Actions       Channels
	Rewards       *Array
	Terminations  *Array
	Truncations   *Array
	TimestampsNS  *Array
	Omens         Channels
	Uncertainties Channels
	Residuals     Channels
	Metadata      map[string]any // belongs to the user
	Attributes    map[string]any // further members of meta/episode
	Chunk         *ChunkPlace
	Provenance    map[string]any // nil if there is none
	Extra         []RawBlock     // every other block

	origin *origin
}

// origin is the file of a loaded episode: order, content types and tags of its blocks, and bytes to write back
// verbatim. series has the declarations of reward and the like, which allow other types than those of the format. An
// episode that is only a part of a file, or joined from several, has these alone.
type origin struct {
	layout   []Entry
	verbatim map[string][]byte
	isSealed bool
	series   map[string]*ChannelSpec
}

// WithoutOrigin returns a copy that does not remember its file: Save then writes the newest form and order.
func (e *Episode) WithoutOrigin() *Episode {
	out := *e
	out.origin = nil
	return &out
}

// lane is a channel and the name of its block.
type lane struct {
	block   string
	channel *Channel
}

// lanes returns every channel, in the order of a new file.
func (e *Episode) lanes() []lane {
	var out []lane
	for _, group := range []struct {
		prefix   string
		channels Channels
	}{{"signal/", e.Observations}, {"action/", e.Actions}, {"omen/", e.Omens}, {"uncert/", e.Uncertainties}, {"residual/", e.Residuals}} {
		for _, channel := range group.channels {
			out = append(out, lane{group.prefix + channel.Name, channel})
		}
	}
	return out
}

// group returns the field that holds the channels of a prefix.
func (e *Episode) group(prefix string) *Channels {
	return map[string]*Channels{
		"signal": &e.Observations, "action": &e.Actions, "omen": &e.Omens, "uncert": &e.Uncertainties, "residual": &e.Residuals,
	}[prefix]
}

// seriesNames are the blocks with one value for each step, in the order of a new file.
var seriesNames = [...]string{blockReward, blockDone, blockTruncated, blockTimestamps}

// series returns the field that holds the array of a block.
func (e *Episode) series(name string) **Array {
	switch name {
	case blockReward:
		return &e.Rewards
	case blockDone:
		return &e.Terminations
	case blockTruncated:
		return &e.Truncations
	}
	return &e.TimestampsNS
}

// declaredSeries returns the declaration of a series in the file of this episode, if the array still has that type.
func (e *Episode) declaredSeries(name string) *ChannelSpec {
	array := *e.series(name)
	if e.origin == nil || array == nil {
		return nil
	}
	spec := e.origin.series[name]
	if spec == nil || !fitsSpec(array, spec, e.Length) {
		return nil
	}
	return spec
}

// fitsSpec reports whether the array has the declared type and shape.
func fitsSpec(array *Array, spec *ChannelSpec, length int) bool {
	if spec.isEncoded() {
		return array.DType == U8 && len(array.Shape) == 1
	}
	hasRows := len(array.Shape) > 0 && (array.Len() == length || hasOwnLength(spec.Attributes))
	return hasRows && array.DType == spec.DType && sameShape(array.StepShape(), spec.Shape)
}

func sameShape(left, right []int) bool {
	if len(left) != len(right) {
		return false
	}
	for i := range left {
		if left[i] != right[i] {
			return false
		}
	}
	return true
}

// check refuses an episode whose arrays do not have its length.
func (e *Episode) check() error {
	seen := map[string]bool{}
	for _, lane := range e.lanes() {
		data := lane.channel.Data
		if lane.channel.Name == "" || seen[lane.block] {
			return badInputf("two channels have the block %q, or one has no name", lane.block)
		}
		seen[lane.block] = true
		if data == nil || len(data.Shape) == 0 {
			return badInputf("channel %q is a scalar or has no data; its first axis must be time", lane.block)
		}
		if err := data.check("channel " + quote(lane.block)); err != nil {
			return err
		}
		prefix, _, _ := laneOf(lane.block)
		hasSteps := !lane.channel.Undeclared && prefix != "residual"
		if hasSteps && !hasOwnLength(lane.channel.Attributes) && data.Len() != e.Length {
			return badInputf("channel %q has %d steps, the episode %d", lane.block, data.Len(), e.Length)
		}
	}
	for _, name := range seriesNames {
		array := *e.series(name)
		if array == nil {
			continue
		}
		if err := array.check(name); err != nil {
			return err
		}
		if e.declaredSeries(name) != nil {
			continue
		}
		if len(array.Shape) != 1 || array.Len() != e.Length {
			return badInputf("%s has the shape %v, the episode %d steps", name, array.Shape, e.Length)
		}
		if array.DType != seriesDTypes[name] {
			return badInputf("%s is %s; the format stores %s", name, array.DType, seriesDTypes[name])
		}
	}
	if e.Timebase.kind() == TimestampsNS && e.TimestampsNS == nil {
		return badInputf("the timebase is timestamps_ns, but the episode has no timestamps")
	}
	return nil
}
