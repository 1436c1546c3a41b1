package wshard

import (
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// Chunks of one episode, read as one episode: the rows of each block are concatenated. Implements "Joined chunks" of
// docs/specs/wshard.md.

// EpisodeReader is an open episode: one File, or the chunks of a JoinedFile.
type EpisodeReader interface {
	Blocks() []string
	Has(name string) bool
	Info() (*Info, error)
	Rows(name string) (RowReader, error)
	Close() error
}

// OpenEpisode opens one file, or all chunks of a manifest as one episode.
func OpenEpisode(path string, options Options) (EpisodeReader, error) {
	if IsManifest(path) {
		joined, err := OpenJoined(path, options)
		if err != nil {
			return nil, err
		}
		return joined, nil
	}
	file, err := Open(path, options)
	if err != nil {
		return nil, err
	}
	return file, nil
}

// JoinedFile reads the open chunks of one episode as one file.
type JoinedFile struct {
	Parts  []*File
	info   *Info
	blocks []string
}

// OpenJoined opens the chunks of a manifest, without hashing them.
func OpenJoined(path string, options Options) (*JoinedFile, error) {
	manifest, err := LoadManifest(path)
	if err != nil {
		return nil, err
	}
	paths, err := findChunks(manifest, path, false)
	if err != nil {
		return nil, err
	}
	var files []*File
	closeAll := func() {
		for _, file := range files {
			file.Close()
		}
	}
	for i, chunk := range paths {
		file, err := Open(chunk, options)
		if err != nil {
			closeAll()
			return nil, err
		}
		files = append(files, file)
		info, err := file.Info()
		if err == nil && (info == nil || info.ID != manifest.EpisodeID || info.Length != manifest.Chunks[i].Length) {
			err = corruptf("%s does not hold %d steps of %q", manifest.Chunks[i].URI, manifest.Chunks[i].Length, manifest.EpisodeID)
		}
		if err != nil {
			closeAll()
			return nil, err
		}
	}
	joined, err := Join(files)
	if err != nil {
		closeAll()
	}
	return joined, err
}

// findChunks returns the files of a manifest, in order. If isVerified, they are hashed and compared.
func findChunks(manifest *ChunkManifest, path string, isVerified bool) ([]string, error) {
	directory, checked := filepath.Dir(path), ""
	if isVerified {
		checked = directory
	}
	if err := manifest.CheckContinuity(checked); err != nil {
		return nil, err
	}
	var out []string
	for _, entry := range manifest.Chunks {
		chunk := filepath.Join(directory, entry.URI)
		if status, err := os.Stat(chunk); err != nil || !status.Mode().IsRegular() {
			return nil, corruptf("chunk %d of %q is missing: %s", entry.Index, manifest.EpisodeID, chunk)
		}
		out = append(out, chunk)
	}
	return out, nil
}

// Join reads open chunks, in order, as one episode. An error of the kind Corrupt if they differ in their environment,
// rate, or channels.
func Join(files []*File) (*JoinedFile, error) {
	if len(files) == 0 {
		return nil, badInputf("there are no chunks to join")
	}
	var first *chunkLayout
	joined := &JoinedFile{Parts: files}
	for number, file := range files {
		layout, err := fileLayout(file)
		if err != nil {
			return nil, err
		}
		info, err := file.Info()
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = layout
			whole := *info
			whole.Chunk, whole.Length, whole.Metadata = nil, 0, map[string]any{}
			joined.info = &whole
		}
		if problem := findDisagreement(first, layout, false); problem != "" {
			return nil, corruptf("chunk %d of the episode %q %s", number, joined.info.ID, problem)
		}
		joined.info.Length += info.Length
		for key, value := range info.Metadata {
			joined.info.Metadata[key] = value
		}
	}
	return joined, joined.findBlocks()
}

// findBlocks lists the blocks with rows that continue in the next chunk.
func (j *JoinedFile) findBlocks() error {
	for _, entry := range j.Parts[0].entries {
		name := entry.Name
		spec := j.info.Spec(name)
		if strings.HasPrefix(name, "meta/") || strings.HasPrefix(name, "residual/") || (spec != nil && spec.isEncoded()) {
			continue
		}
		reader, err := j.Parts[0].Block(name)
		if err != nil {
			return err
		}
		found, err := reader.Type()
		if err != nil {
			return err
		}
		if found.IsDeclared {
			j.blocks = append(j.blocks, name)
		}
	}
	return nil
}

// Blocks returns the names of the blocks that can be read over all chunks.
func (j *JoinedFile) Blocks() []string { return append([]string{}, j.blocks...) }

// Has reports whether a block can be read over all chunks.
func (j *JoinedFile) Has(name string) bool {
	for _, block := range j.blocks {
		if block == name {
			return true
		}
	}
	return false
}

// Info returns the metadata of the whole episode. Later chunks override the metadata of earlier ones.
func (j *JoinedFile) Info() (*Info, error) { return j.info, nil }

// Rows returns the reader of a block over all chunks.
func (j *JoinedFile) Rows(name string) (RowReader, error) {
	if !j.Has(name) {
		if j.Parts[0].Has(name) {
			return nil, errorf(Unsupported, "block %q has no rows that go on from chunk to chunk", name).withHint("Read it from Parts.")
		}
		return nil, errorf(NotFound, "there is no block %q", name)
	}
	out := &joinedBlock{name: name, starts: []int{0}}
	for number, file := range j.Parts {
		if !file.Has(name) {
			return nil, corruptf("chunk %d of the episode %q has no block %q", number, j.info.ID, name)
		}
		reader, err := file.Block(name)
		if err != nil {
			return nil, err
		}
		found, err := reader.Type()
		if err != nil {
			return nil, err
		}
		if number == 0 {
			out.found = found
		}
		if found.DType != out.found.DType || !sameShape(found.Shape, out.found.Shape) {
			return nil, corruptf("block %q is %s%v in chunk %d, but %s%v in the first", name, found.DType, found.Shape, number, out.found.DType, out.found.Shape)
		}
		out.parts = append(out.parts, reader)
		out.starts = append(out.starts, out.starts[number]+found.Rows)
	}
	out.found.Rows = out.starts[len(out.parts)]
	return out, nil
}

// Close closes all chunks.
func (j *JoinedFile) Close() error {
	var first error
	for _, file := range j.Parts {
		if err := file.Close(); first == nil {
			first = err
		}
	}
	return first
}

// Identity returns the identity of the whole episode, from those of its chunks.
func (j *JoinedFile) Identity() (string, error) {
	var each []string
	for _, file := range j.Parts {
		one, err := file.Identity()
		if err != nil {
			return "", err
		}
		each = append(each, one)
	}
	return JoinedIdentity(each)
}

// joinedBlock is one block of an episode in several files.
type joinedBlock struct {
	name   string
	parts  []*BlockReader
	starts []int // the first row of each part, and then the number of rows
	found  BlockType
}

func (b *joinedBlock) Name() string             { return b.name }
func (b *joinedBlock) Type() (BlockType, error) { return b.found, nil }

func (b *joinedBlock) Read() (*Array, error) {
	var arrays []*Array
	for _, part := range b.parts {
		array, err := part.Read()
		if err != nil {
			return nil, err
		}
		arrays = append(arrays, array)
	}
	return concatenate(arrays), nil
}

func (b *joinedBlock) Window(start, stop int) (*Array, error) {
	if start < 0 || start > stop || stop > b.found.Rows {
		return nil, badInputf("rows %d…%d are not within the %d of %q", start, stop, b.found.Rows, b.name)
	}
	var arrays []*Array
	for number := max(0, sort.SearchInts(b.starts, start+1)-1); number < len(b.parts) && (start < stop || arrays == nil); number++ {
		end := min(stop, b.starts[number+1])
		if start == end && start < stop {
			continue // an empty part
		}
		array, err := b.parts[number].Window(start-b.starts[number], end-b.starts[number])
		if err != nil {
			return nil, err
		}
		arrays = append(arrays, array)
		start = end
	}
	if arrays == nil {
		return b.parts[0].Window(0, 0)
	}
	return concatenate(arrays), nil
}

// concatenate joins arrays of one type along their first axis. A single array stays a view.
func concatenate(arrays []*Array) *Array {
	if len(arrays) == 1 {
		return arrays[0]
	}
	out := &Array{arrays[0].DType, append([]int{}, arrays[0].Shape...), nil}
	out.Shape[0] = 0
	for _, array := range arrays {
		out.Shape[0] += array.Len()
		out.Data = append(out.Data, array.Data...)
	}
	if out.Data == nil {
		out.Data = []byte{}
	}
	return out
}
