package wshard

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"unicode/utf8"
)

// Writing of an episode in several files. The writer owns the episode: a second one is refused, and a later one
// continues only on request. Implements "Chunked episodes" of docs/specs/wshard.md.

const (
	defaultChunkSteps  = 1000
	maxFileNameBytes   = 255
	manifestHeadBytes  = 4096 // everything but the entries, without the two names
	manifestEntryBytes = 400  // upper bound of an entry without its uri
)

// ChunkedOptions are options of a ChunkedWriter. The zero value is the default.
type ChunkedOptions struct {
	MaxSteps    int // of one chunk; 1000 if 0
	TotalChunks int // written into each chunk if it is known, so not 0; the last chunk always has it
	Save        SaveOptions
	Resume      bool // continue after the chunks in the directory; without it, they are an error
}

// ChunkedWriter writes the chunks of one episode into a directory, in order, and then their manifest.
type ChunkedWriter struct {
	directory string
	id        string
	options   ChunkedOptions
	total     int // 0 if it is unknown
	lock      *os.File
	layout    *chunkLayout
	chunks    []ChunkEntry
	manifest  *ChunkManifest
}

// NewChunkedWriter looks for chunks of the episode, and refuses them or continues after them.
func NewChunkedWriter(directory, episodeID string, options ChunkedOptions) (*ChunkedWriter, error) {
	if err := checkChunkedID(episodeID); err != nil {
		return nil, err
	}
	if options.MaxSteps == 0 {
		options.MaxSteps = defaultChunkSteps
	}
	if options.MaxSteps < 0 || options.TotalChunks < 0 || options.TotalChunks > maxChunks || options.Save.TimeChunkSteps < 0 {
		return nil, badInputf("the options %+v are not valid", options)
	}
	if _, err := alignmentOf(options.Save.Alignment); err != nil {
		return nil, err
	}
	compressions := []Compression{options.Save.Compression}
	for _, one := range options.Save.PerBlock {
		compressions = append(compressions, one)
	}
	for _, one := range compressions {
		if err := one.check(); err != nil {
			return nil, err
		}
	}
	w := &ChunkedWriter{directory: directory, id: episodeID, options: options, total: options.TotalChunks}
	if options.Resume {
		return w, w.findWritten()
	}
	return w, w.refuseExisting()
}

// checkChunkedID refuses an id of which a file name would be too long, or not a name, before the first chunk.
func checkChunkedID(id string) error {
	if !isFileName(id) || !utf8.ValidString(id) {
		return badInputf("the id %.40q is not valid for a chunked episode, which names files", id)
	}
	if !isFileName(chunkURI(id, maxChunks-1)) || len(manifestName(id)+journalSuffix) > maxFileNameBytes {
		return errorf(BadInput, "the id %.40q… has too many characters for the names of its files", id).withHint("A name of 180 ASCII characters fits.")
	}
	return nil
}

// ManifestPath returns the path of the manifest, which exists after Finish.
func (w *ChunkedWriter) ManifestPath() string { return filepath.Join(w.directory, manifestName(w.id)) }

func (w *ChunkedWriter) lockPath() string { return w.ManifestPath() + journalSuffix }

// StepCount returns the number of steps in all chunks so far.
func (w *ChunkedWriter) StepCount() int {
	total := 0
	for _, entry := range w.chunks {
		total += entry.Length
	}
	return total
}

// Write saves the next chunk. Its id must be that of the episode; its Chunk field is ignored.
func (w *ChunkedWriter) Write(chunk *Episode) (ChunkEntry, error) {
	layout, err := w.check(chunk)
	if err != nil {
		return ChunkEntry{}, err
	}
	index, first := len(w.chunks), w.StepCount()
	entry := ChunkEntry{Index: index, URI: chunkURI(w.id, index), First: first, Last: first + chunk.Length - 1, Length: chunk.Length, Total: w.total}
	path := filepath.Join(w.directory, entry.URI)
	if err := w.claim(); err != nil {
		return entry, explainOS(err, w.lockPath())
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return entry, errorf(AlreadyExists, "%s already exists", path).withHint("Pass Resume to continue after it.")
	}
	if err := w.reopen(); err != nil {
		return entry, explainOS(err, w.ManifestPath())
	}
	placed := *chunk
	placed.Chunk = &ChunkPlace{index, totalOrUnknown(w.total), first}
	if _, err := Save(&placed, path, w.options.Save); err != nil {
		return entry, err
	}
	if entry.SHA256, err = sha256File(path); err != nil {
		return entry, err
	}
	if w.layout == nil {
		w.layout = layout
	}
	w.chunks = append(w.chunks, entry)
	return entry, nil
}

func totalOrUnknown(total int) int {
	if total == 0 {
		return Unknown
	}
	return total
}

func (w *ChunkedWriter) check(chunk *Episode) (*chunkLayout, error) {
	if w.manifest != nil {
		return nil, errorf(BadInput, "the manifest is written").withHint("Pass Resume to a new writer to continue.")
	}
	if err := chunk.check(); err != nil {
		return nil, err
	}
	number := len(w.chunks)
	if chunk.ID != w.id || chunk.Length < 1 || chunk.Length > w.options.MaxSteps {
		return nil, badInputf("the chunk has the id %q and %d steps; %q and 1 to %d steps were expected", chunk.ID, chunk.Length, w.id, w.options.MaxSteps)
	}
	layout, err := episodeLayout(chunk)
	if err != nil {
		return nil, err
	}
	if w.layout != nil {
		if problem := findDisagreement(w.layout, layout, true); problem != "" {
			return nil, badInputf("chunk %d %s, unlike the first chunk", number, problem)
		}
	}
	if w.total > 0 && number >= w.total {
		return nil, badInputf("TotalChunks is %d, and this is one more", w.total)
	}
	// A character takes at most six bytes in JSON.
	most := manifestHeadBytes + 6*(len(w.id)+len(chunk.EnvID)) + (number+1)*(manifestEntryBytes+6*len(w.id))
	if number >= maxChunks || most > maxJSONBytes {
		return nil, errorf(LimitExceeded, "a manifest cannot list more than %d chunks of %q", number, w.id)
	}
	return layout, nil
}

// Finish writes the manifest. The last chunk states the number of chunks.
func (w *ChunkedWriter) Finish() (*ChunkManifest, error) {
	if w.manifest != nil {
		return w.manifest, nil
	}
	count := len(w.chunks)
	if count == 0 || (w.total > 0 && w.total != count) {
		return nil, badInputf("%d chunks were written, %d were expected (0: at least 1)", count, w.total)
	}
	if err := w.claim(); err != nil {
		return nil, explainOS(err, w.lockPath())
	}
	if err := w.stateTotal(count); err != nil {
		return nil, err
	}
	manifest := &ChunkManifest{w.id, w.layout.envID, count, w.StepCount(), append([]ChunkEntry{}, w.chunks...)}
	for i := range manifest.Chunks {
		manifest.Chunks[i].Total = count
	}
	data, err := manifest.encode()
	if err != nil {
		return nil, err
	}
	plans := []blockPlan{planBytes(metaManifest, data, contentJSON, 0)}
	if _, err := writeContainer(w.ManifestPath(), plans, containerOptions{role: roleManifest, alignment: defaultAlignment}); err != nil {
		return nil, err
	}
	w.manifest = manifest
	if err := removeFile(w.lockPath()); err != nil {
		return nil, explainOS(err, w.lockPath())
	}
	return manifest, w.Close()
}

// Close gives up the episode. Without a manifest, its chunks stay for a writer with Resume.
func (w *ChunkedWriter) Close() error {
	lock := w.lock
	w.lock = nil
	if lock == nil {
		return nil
	}
	defer lock.Close()
	if len(w.chunks) == 0 && isAt(lock, w.lockPath()) {
		return explainOS(removeFile(w.lockPath()), w.lockPath())
	}
	return nil
}

// written returns the chunks of this episode in the directory, by index.
func (w *ChunkedWriter) written() ([]int, []string, error) {
	listed, err := os.ReadDir(w.directory)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, explainOS(err, w.directory)
	}
	pattern := regexp.MustCompile(`^` + regexp.QuoteMeta(w.id) + `_chunk_([0-9]{4,6})\.wshard$`)
	found := map[int]string{}
	var numbers []int
	for _, item := range listed {
		if match := pattern.FindStringSubmatch(item.Name()); match != nil {
			number, _ := strconv.Atoi(match[1])
			numbers = append(numbers, number)
			found[number] = filepath.Join(w.directory, item.Name())
		}
	}
	sort.Ints(numbers)
	paths := make([]string, len(numbers))
	for i, number := range numbers {
		paths[i] = found[number]
	}
	return numbers, paths, nil
}

func (w *ChunkedWriter) refuseExisting() error {
	_, paths, err := w.written()
	if err != nil {
		return err
	}
	if _, err := os.Stat(w.ManifestPath()); err == nil {
		paths = append(paths, w.ManifestPath())
	}
	if len(paths) > 0 {
		return errorf(AlreadyExists, "the episode %q already exists: %s", w.id, paths[0]).
			withHint("Pass Resume to continue it, or choose another directory or id.")
	}
	return nil
}

// findWritten continues after the chunks in the directory, which must be complete and alike.
func (w *ChunkedWriter) findWritten() error {
	numbers, paths, err := w.written()
	if err != nil {
		return err
	}
	var stated []int
	for number, path := range paths {
		if numbers[number] != number {
			return corruptf("chunk %d of the episode %q is missing in %s", number, w.id, w.directory)
		}
		info, layout, err := readLayout(path)
		if err != nil {
			return err
		}
		first := w.StepCount()
		if info == nil || info.Chunk == nil || info.ID != w.id || info.Chunk.Index != number || info.Chunk.FirstStep != first {
			return corruptf("%s is not chunk %d of the episode %q from step %d on", path, number, w.id, first)
		}
		if w.layout == nil {
			w.layout = layout
		}
		if problem := findDisagreement(w.layout, layout, true); problem != "" {
			return corruptf("%s %s", path, problem)
		}
		digest, err := sha256File(path)
		if err != nil {
			return err
		}
		total := max(0, info.Chunk.Total)
		w.chunks = append(w.chunks, ChunkEntry{number, filepath.Base(path), digest, first, first + info.Length - 1, info.Length, total})
		stated = append(stated, total)
	}
	return w.adoptTotal(stated)
}

// adoptTotal takes over a promised number of chunks. The one that the last chunk alone states is not a promise.
func (w *ChunkedWriter) adoptTotal(stated []int) error {
	if len(stated) == 0 || stated[0] == 0 || (len(stated) == 1 && stated[0] <= 1) {
		return nil
	}
	if w.total != 0 && w.total != stated[0] {
		return badInputf("TotalChunks is %d, but the chunks say %d", w.total, stated[0])
	}
	w.total = stated[0]
	return nil
}

// claim owns the episode, and checks that no other writer has added to it.
func (w *ChunkedWriter) claim() error {
	if w.lock != nil {
		return nil
	}
	if err := os.MkdirAll(w.directory, 0o777); err != nil {
		return err
	}
	lock, err := claimJournal(w.lockPath(), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	numbers, _, err := w.written()
	if err == nil && len(numbers) != len(w.chunks) {
		err = errorf(Conflict, "another writer has added chunks to the episode %q", w.id)
	}
	if err != nil {
		os.Remove(w.lockPath())
		lock.Close()
		return err
	}
	w.lock = lock
	return nil
}

// reopen removes the manifest of an episode that continues, and the total that its last chunk states.
func (w *ChunkedWriter) reopen() error {
	if len(w.chunks) == 0 || w.total != 0 {
		return nil
	}
	if err := removeFile(w.ManifestPath()); err != nil {
		return err
	}
	return w.stateTotal(0)
}

// stateTotal writes the number of chunks into the last chunk, or removes it if it is 0, unless it is already so.
func (w *ChunkedWriter) stateTotal(total int) error {
	entry := &w.chunks[len(w.chunks)-1]
	if entry.Total == total {
		return nil
	}
	path := filepath.Join(w.directory, entry.URI)
	e, err := Load(path)
	if err != nil {
		return err
	}
	e.Chunk = &ChunkPlace{entry.Index, totalOrUnknown(total), entry.First}
	if _, err := Save(e, path, w.options.Save); err != nil {
		return err
	}
	digest, err := sha256File(path)
	if err != nil {
		return err
	}
	entry.SHA256, entry.Total = digest, total
	return nil
}
