package wshard

import (
	"io"
	"math"
	"os"
	"strings"
)

// Loading of an episode into memory. Every block ends up in a field of Episode if the format defines its meaning, and
// in Extra otherwise. Implements "Block types" of docs/specs/wshard.md.

// Load reads the episode into arrays of its own, with every checksum verified. channels select some by id or block
// name, without predictions and uninterpreted blocks; none means all. A journal (….partial) gives the steps flushed so
// far, also while it is being written. The path of a chunk manifest loads all its chunks, verified and joined.
func Load(path string, channels ...string) (*Episode, error) {
	if len(channels) == 0 {
		return loadSome(path, nil)
	}
	return loadSome(path, channels)
}

// loadSome loads all channels if the list is nil.
func loadSome(path string, channels []string) (*Episode, error) {
	switch head := firstBytes(path); {
	case strings.HasPrefix(head, journalMagic):
		return loadJournalFile(path, channels)
	case isManifestHead(head):
		return loadChunks(path, channels)
	}
	file, err := Open(path, Options{CacheBytes: -1})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return loadFile(file, channels)
}

// LoadReaderAt loads the episode of any source; see Load.
func LoadReaderAt(reader io.ReaderAt, size int64, channels ...string) (*Episode, error) {
	file, err := OpenReaderAt(reader, size, Options{CacheBytes: -1})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if len(channels) == 0 {
		channels = nil
	}
	return loadFile(file, channels)
}

// IsJournal reports whether a file begins like the journal of a recording. False if it cannot be read.
func IsJournal(path string) bool { return strings.HasPrefix(firstBytes(path), journalMagic) }

// firstBytes returns the beginning of a file. Opening the file explains why it cannot be read.
func firstBytes(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	var head [roleAt + 1]byte
	count, _ := io.ReadFull(file, head[:])
	return string(head[:count])
}

func loadFile(file *File, channels []string) (*Episode, error) {
	info, err := file.Info()
	if err != nil {
		return nil, err
	}
	if info == nil {
		return nil, corruptf("there is no block %q", metaEpisode)
	}
	var selected map[string]bool
	if channels != nil {
		if selected, err = selectBlocks(channels, file, info); err != nil {
			return nil, err
		}
	}
	var entries []*Entry
	for _, entry := range file.entries {
		if selected == nil || selected[entry.Name] || isSeries(entry.Name) {
			entries = append(entries, entry)
		}
	}
	if err := checkLoadSize(entries); err != nil {
		return nil, err
	}
	loader := &loader{info: info, origin: &origin{verbatim: map[string][]byte{}, series: map[string]*ChannelSpec{}}}
	for _, entry := range entries {
		reader, err := file.Block(entry.Name)
		if err == nil {
			err = loader.add(reader)
		}
		if err != nil {
			return nil, err
		}
		if spec := info.Spec(entry.Name); spec != nil && isSeries(entry.Name) {
			loader.origin.series[entry.Name] = spec
		}
	}
	if selected == nil {
		loader.origin.isSealed = file.IsSealed()
		for _, entry := range file.entries {
			loader.origin.layout = append(loader.origin.layout, *entry)
		}
	} else {
		loader.origin.verbatim = nil
	}
	return loader.finish()
}

// checkLoadSize bounds the sum of all decoded blocks. Each block has its own bound, but a small file may hold many.
func checkLoadSize(entries []*Entry) error {
	stored, decoded := 0, 0
	for _, entry := range entries {
		if entry.Codec != None {
			stored += entry.Stored
			if decoded += entry.Size; decoded < 0 {
				decoded = math.MaxInt64
			}
		}
	}
	if decoded > maxReadBytes && decoded > readExpansion*stored {
		return errorf(LimitExceeded, "the blocks would take %d bytes, decoded from %d: too many to load at once", decoded, stored).
			withHint("Name some channels, or read windows with Open.")
	}
	return nil
}

func selectBlocks(channels []string, file *File, info *Info) (map[string]bool, error) {
	byID := map[string][]string{}
	for _, spec := range info.Channels() {
		byID[spec.ID] = append(byID[spec.ID], spec.Block)
	}
	out := map[string]bool{}
	for _, name := range channels {
		isFound := false
		for _, block := range append([]string{name, "signal/" + name, "action/" + name}, byID[name]...) {
			if file.Has(block) {
				out[block], isFound = true, true
			}
		}
		if !isFound {
			return nil, errorf(NotFound, "there is no channel %q", name)
		}
	}
	return out, nil
}

// loader collects the blocks read from a file so far.
type loader struct {
	info    *Info
	episode Episode
	origin  *origin
}

func (l *loader) add(reader *BlockReader) error {
	name := reader.entry.Name
	prefix, rest, isLane := laneOf(name)
	switch {
	case name == metaWShard || name == metaEpisode || name == metaChannels || name == metaProvenance:
		data, err := reader.owned()
		if err != nil {
			return err
		}
		l.origin.verbatim[name] = data
		if name == metaProvenance {
			l.episode.Provenance, err = decodeObject(data, name)
		}
		return err
	case name == metaIdentity:
		// Saving computes a new seal. Here only its checksum is verified.
		_, err := reader.raw()
		return err
	case isSeries(name):
		array, err := l.array(reader)
		*l.episode.series(name) = array
		return err
	case isLane:
		return l.addChannel(reader, prefix, rest)
	}
	data, err := reader.owned()
	l.episode.Extra = append(l.episode.Extra, RawBlock{name, data, reader.entry.ContentType, reader.entry.Tags})
	return err
}

func (l *loader) addChannel(reader *BlockReader, prefix, rest string) error {
	found, err := reader.Type()
	if err != nil {
		return err
	}
	array, err := l.array(reader)
	if err != nil {
		return err
	}
	channel := &Channel{Name: rest, ID: rest, Data: array, Attributes: map[string]any{}, Undeclared: !found.IsDeclared}
	if spec := l.info.Spec(reader.entry.Name); spec != nil {
		channel.ID, channel.Attributes = spec.ID, spec.Attributes
		if spec.isEncoded() {
			channel.Decoded = &FrameType{spec.DType, spec.Shape}
		}
	}
	group := l.episode.group(prefix)
	*group = append(*group, channel)
	return nil
}

// array reads rows. If the file stores true as another byte than 1, saving must write the same bytes.
func (l *loader) array(reader *BlockReader) (*Array, error) {
	found, err := reader.Type()
	if err != nil {
		return nil, err
	}
	data, err := reader.owned()
	if err != nil {
		return nil, err
	}
	if found.DType == Bool && !isBoolean(data) {
		l.origin.verbatim[reader.entry.Name] = data
	}
	return rowsOf(data, found.DType, found.Rows, found.Shape)
}

func (l *loader) finish() (*Episode, error) {
	e, info := &l.episode, l.info
	if info.Timebase.Type == TimestampsNS && e.TimestampsNS == nil {
		return nil, corruptf("the timebase is timestamps_ns, but there is no block %q", blockTimestamps)
	}
	e.ID, e.Length, e.EnvID, e.Timebase = info.ID, info.Length, info.EnvID, info.Timebase
	e.Metadata, e.Attributes, e.Chunk, e.origin = info.Metadata, info.Attributes, info.Chunk, l.origin
	return e, nil
}
