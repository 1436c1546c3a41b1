package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"wshard"
)

// saveOptions are those of save_wshard in Python, by the same names.
type saveOptions struct {
	Compression    compression            `json:"compression"`
	PerBlock       map[string]compression `json:"per_block"`
	Alignment      *int                   `json:"alignment"`
	TimeChunkSteps int                    `json:"time_chunk_steps"`
	Seal           *bool                  `json:"seal"`
}

// compression is a name, or a list of name and level.
type compression struct{ wshard.Compression }

func (c *compression) UnmarshalJSON(data []byte) error {
	var name string
	var level int
	if json.Unmarshal(data, &name) != nil {
		pair := []any{&name, &level}
		if err := json.Unmarshal(data, &pair); err != nil {
			return err
		}
	}
	parsed, err := wshard.ParseCompression(name, level)
	c.Compression = parsed
	return err
}

func (o saveOptions) translated() wshard.SaveOptions {
	out := wshard.SaveOptions{Compression: o.Compression.Compression, TimeChunkSteps: o.TimeChunkSteps}
	if o.Alignment != nil {
		if out.Alignment = *o.Alignment; *o.Alignment == 0 {
			out.Alignment = wshard.Unaligned
		}
	}
	if o.Seal != nil {
		out.Seal = wshard.SealNever
		if *o.Seal {
			out.Seal = wshard.SealAlways
		}
	}
	if o.PerBlock != nil {
		out.PerBlock = map[string]wshard.Compression{}
		for name, one := range o.PerBlock {
			out.PerBlock[name] = one.Compression
		}
	}
	return out
}

func load(path string, channels []string) (any, error) {
	e, err := wshard.Load(path, channels...)
	if err != nil {
		return nil, err
	}
	return describe(e)
}

// describe returns an episode in the form of `described` in tests/formats/wshard/drivers.py.
func describe(e *wshard.Episode) (any, error) {
	words := make([]string, 3)
	for i, members := range []map[string]any{e.Metadata, e.Attributes, e.Provenance} {
		text, err := wordsOf(members)
		if err != nil {
			return nil, err
		}
		words[i] = text
	}
	var step, rate, place any
	if e.Timebase.DtNS != 0 {
		step = strconv.FormatInt(e.Timebase.DtNS, 10)
	}
	if e.Timebase.TickHz != 0 {
		// The bits, because JSON has no single form for large fractions.
		rate = fmt.Sprintf("%016x", math.Float64bits(e.Timebase.TickHz))
	}
	if e.Chunk != nil {
		place = []any{orNull(e.Chunk.Index), orNull(e.Chunk.Total), e.Chunk.FirstStep}
	}
	lanes := map[string]any{}
	for prefix, group := range map[string]wshard.Channels{
		"signal/": e.Observations, "action/": e.Actions, "omen/": e.Omens, "uncert/": e.Uncertainties, "residual/": e.Residuals,
	} {
		for _, channel := range group {
			attributes, err := wordsOf(channel.Attributes)
			if err != nil {
				return nil, err
			}
			lanes[prefix+channel.Name] = append(arrayOf(channel.Data), channel.ID, attributes, !channel.Undeclared)
		}
	}
	extra := map[string]any{}
	for _, block := range e.Extra {
		extra[block.Name] = []any{hashOf(block.Data), block.ContentType, block.Tags}
	}
	series := []any{}
	for _, array := range []*wshard.Array{e.Rewards, e.Terminations, e.Truncations, e.TimestampsNS} {
		if array == nil {
			series = append(series, nil)
		} else {
			series = append(series, hashOf(array.Data))
		}
	}
	return map[string]any{
		"head":   []any{e.ID, e.Length, e.EnvID, e.Timebase.Type, rate, step},
		"chunk":  place,
		"words":  words,
		"series": series,
		"lanes":  lanes,
		"extra":  extra,
	}, nil
}

func wordsOf(members map[string]any) (string, error) {
	if members == nil {
		return "null", nil
	}
	data, err := wshard.EncodeJSON(members)
	return string(data), err
}

func orNull(value int) any {
	if value == wshard.Unknown {
		return nil
	}
	return value
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func arrayOf(array *wshard.Array) []any {
	return []any{array.DType, array.Shape, hashOf(array.Data)}
}

func blocks(path string) (any, error) {
	file, err := wshard.OpenEpisode(path, wshard.Options{})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	out := []any{}
	for _, name := range file.Blocks() {
		reader, err := file.Rows(name)
		if err != nil {
			return nil, err
		}
		array, err := reader.Read()
		if err != nil {
			return nil, err
		}
		out = append(out, []any{name, arrayOf(array)})
	}
	return out, nil
}

// window reads the rows from mapped memory and by ranges, which must agree.
func window(path, block string, rows [2]int) (any, error) {
	var found []any
	for _, isRanged := range []bool{false, true} {
		file, err := wshard.OpenEpisode(path, wshard.Options{NoMap: isRanged})
		if err != nil {
			return nil, err
		}
		defer file.Close()
		reader, err := file.Rows(block)
		if err != nil {
			return nil, err
		}
		array, err := reader.Window(rows[0], rows[1])
		if err != nil {
			return nil, err
		}
		if again := arrayOf(array); found != nil && fmt.Sprint(found...) != fmt.Sprint(again...) {
			return nil, fmt.Errorf("mapped %v, by ranges %v", found, again)
		}
		found = arrayOf(array)
	}
	return found, nil
}

func rewrite(asked question) (any, error) {
	e, err := wshard.Load(asked.Path)
	if err != nil {
		return nil, err
	}
	if asked.Fresh {
		e = e.WithoutOrigin()
	}
	sealed, err := wshard.Save(e, asked.To, asked.Options.translated())
	if err != nil || sealed == "" {
		return nil, err
	}
	return sealed, nil
}

func frames(path, block string) (any, error) {
	file, err := wshard.Open(path, wshard.Options{})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	index, err := file.FrameIndex(block)
	if err != nil {
		return nil, err
	}
	reader, err := file.Block(block)
	if err != nil {
		return nil, err
	}
	extents, spans := [][2]int{}, [][2]int{}
	for frame := 0; frame < index.Len(); frame++ {
		number, err := index.Entry(frame)
		if err != nil {
			return nil, err
		}
		entry := index.Entries[number]
		low, high, err := index.EntrySpan(frame, frame)
		if err != nil {
			return nil, err
		}
		extents = append(extents, [2]int{entry.Offset, entry.Offset + entry.Size})
		spans = append(spans, [2]int{low, high})
		if _, err := reader.FrameBytes(entry); err != nil {
			return nil, err
		}
	}
	times := []string{} // a number of JSON may lose digits
	for _, time := range index.TimesNS() {
		times = append(times, strconv.FormatInt(time, 10))
	}
	encoded, err := index.Encode(reader.Entry().Size)
	return map[string]any{
		"codec": index.Codec, "extradata": hashOf(index.Extradata), "times": times, "extents": extents,
		"spans": spans, "groups": index.Groups(), "encoded": hashOf(encoded),
	}, err
}

func manifest(path string) (any, error) {
	found, err := wshard.LoadManifest(path)
	if err != nil {
		return nil, err
	}
	return found, found.CheckContinuity("")
}
