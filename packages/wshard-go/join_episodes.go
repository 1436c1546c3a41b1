package wshard

import (
	"bytes"
	"fmt"
	"strings"
)

// Loading of all chunks of an episode into memory. Implements "Joined chunks" of docs/specs/wshard.md.

const joinHint = "Load the chunks one by one, or name the channels to load."

func loadChunks(path string, channels []string) (*Episode, error) {
	manifest, err := LoadManifest(path)
	if err != nil {
		return nil, err
	}
	paths, err := findChunks(manifest, path, true)
	if err != nil {
		return nil, err
	}
	var chunks []*Episode
	for _, chunk := range paths {
		e, err := loadSome(chunk, channels)
		if err != nil {
			return nil, err
		}
		chunks = append(chunks, e)
	}
	return JoinEpisodes(chunks)
}

// JoinEpisodes joins the chunks of an episode, given in order. Video and residuals are encoded separately in each chunk
// and cannot be joined: the kind of the error is Unsupported. Uninterpreted blocks must be equal in all chunks.
func JoinEpisodes(chunks []*Episode) (*Episode, error) {
	if len(chunks) == 0 {
		return nil, badInputf("there are no chunks to join")
	}
	out := *chunks[0]
	out.Chunk = nil
	if len(chunks) == 1 {
		return &out, nil
	}
	if err := checkAlike(chunks); err != nil {
		return nil, err
	}
	out.Length, out.Metadata, out.Provenance, out.origin = 0, map[string]any{}, nil, nil
	if first := chunks[0].origin; first != nil && len(first.series) > 0 {
		out.origin = &origin{series: first.series}
	}
	for _, chunk := range chunks {
		out.Length += chunk.Length
		for key, value := range chunk.Metadata {
			out.Metadata[key] = value
		}
	}
	for _, name := range seriesNames {
		var arrays []*Array
		for _, chunk := range chunks {
			if array := *chunk.series(name); array != nil {
				arrays = append(arrays, array)
			}
		}
		if arrays != nil {
			*out.series(name) = concatenate(arrays)
		}
	}
	for _, prefix := range []string{"signal", "action", "omen", "uncert", "residual"} {
		joined, err := joinChannels(chunks, prefix)
		if err != nil {
			return nil, err
		}
		*out.group(prefix) = joined
	}
	extra, err := joinExtra(chunks)
	out.Extra = extra
	return &out, err
}

func checkAlike(chunks []*Episode) error {
	first, err := episodeLayout(chunks[0])
	if err != nil {
		return err
	}
	for number, chunk := range chunks[1:] {
		layout, err := episodeLayout(chunk)
		if err != nil {
			return err
		}
		problem := findDisagreement(first, layout, true)
		if chunk.ID != chunks[0].ID {
			problem = fmt.Sprintf("has the id %q instead of %q", chunk.ID, chunks[0].ID)
		}
		if problem != "" {
			return errorf(Unsupported, "chunk %d %s, so the chunks cannot be joined", number+1, problem).withHint(joinHint)
		}
	}
	return nil
}

func joinChannels(chunks []*Episode, prefix string) (Channels, error) {
	var out Channels
	refuse := func(name string) error {
		return errorf(Unsupported, "channel %q has an encoding of its own in each chunk", name).withHint(joinHint)
	}
	for _, first := range *chunks[0].group(prefix) {
		if first.isEncoded() || first.Undeclared || strings.HasSuffix(first.Name, "/sign2nddiff") {
			return nil, refuse(first.Name)
		}
		var arrays []*Array
		for _, chunk := range chunks {
			channel := chunk.group(prefix).Get(first.Name)
			if channel == nil {
				return nil, refuse(first.Name)
			}
			arrays = append(arrays, channel.Data)
		}
		joined := *first
		joined.Data = concatenate(arrays)
		out = append(out, &joined)
	}
	for _, chunk := range chunks {
		for _, channel := range *chunk.group(prefix) {
			if out.Get(channel.Name) == nil {
				return nil, refuse(channel.Name)
			}
		}
	}
	return out, nil
}

// joinExtra joins time/ticks, and requires that all other blocks are equal in all chunks.
func joinExtra(chunks []*Episode) ([]RawBlock, error) {
	find := func(blocks []RawBlock, name string) *RawBlock {
		for i := range blocks {
			if blocks[i].Name == name {
				return &blocks[i]
			}
		}
		return nil
	}
	out := append([]RawBlock{}, chunks[0].Extra...)
	for _, chunk := range chunks[1:] {
		for _, block := range append(append([]RawBlock{}, chunks[0].Extra...), chunk.Extra...) {
			left, right := find(chunks[0].Extra, block.Name), find(chunk.Extra, block.Name)
			if left != nil && right != nil && block.Name == blockTicks {
				continue
			}
			if left == nil || right == nil || !bytes.Equal(left.Data, right.Data) || left.ContentType != right.ContentType || left.Tags != right.Tags {
				return nil, errorf(Unsupported, "block %q is not the same in all chunks", block.Name).withHint(joinHint)
			}
		}
		if ticks, more := find(out, blockTicks), find(chunk.Extra, blockTicks); ticks != nil && more != nil {
			ticks.Data = append(append([]byte{}, ticks.Data...), more.Data...)
		}
	}
	return out, nil
}
