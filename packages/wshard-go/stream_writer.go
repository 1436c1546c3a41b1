package wshard

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// Recording of an episode step by step. Steps are checked, buffered, and appended to a journal beside the target; the
// end of the episode assembles the file from the journal. Implements "Recording" of docs/specs/wshard.md.

// Fsync says when a recording forces bytes to the disk. A crash of the process alone loses no flushed step with any
// of them; a power cut may.
type Fsync uint8

// The moments of Fsync; at every flush is the default.
const (
	FsyncFlush Fsync = iota
	FsyncEnd
	FsyncNever
)

const (
	defaultFlushSteps = 64
	bufferBytes       = 16 << 20
)

// StreamChannel declares a channel of a recording.
type StreamChannel struct {
	ID    string
	DType DType
	Shape []int // of one step
	// Block defaults to signal/ and the ID. It begins with signal/, action/, omen/ or uncert/.
	Block       string
	Attributes  map[string]any
	Compression Compression
}

// StreamOptions are options of a StreamWriter. The zero value is the default.
type StreamOptions struct {
	FlushSteps     int // 64 if 0; fewer if their buffers would exceed 16 MiB
	Fsync          Fsync
	Alignment      int // as in SaveOptions
	TimeChunkSteps int
	Seal           bool
}

// Begin describes the episode of a recording.
type Begin struct {
	EnvID      string
	Timebase   Timebase
	Metadata   map[string]any
	Attributes map[string]any
}

// Step is one step of a recording. Values are keyed by channel id: slices such as []float32 with all elements of a
// step, scalars such as float32 or int, or *Array. F16 and BF16 are uint16 with the same bits.
type Step struct {
	Values      map[string]any
	Reward      float32
	Done        bool
	Truncated   bool
	TimestampNS int64 // only if the timebase is TimestampsNS
}

// StreamWriter records one episode through a journal beside its target, which it owns until it ends or its process
// dies. It is not safe for several goroutines.
type StreamWriter struct {
	path     string
	id       string
	channels []*ChannelSpec
	packed   map[string]any
	options  StreamOptions
	align    int

	file     *os.File
	parts    []*ChannelSpec
	widths   []int
	record   []byte // a header, and the rows of each part for the most steps of a record
	starts   []int  // the offset of each part in the record
	rows     int    // the most steps of a record
	pending  [][]byte
	scratch  []byte
	steps    int
	flushed  int
	size     int
	sequence uint32
	isBegun  bool
	hasEnd   bool
}

// NewStreamWriter checks the declarations. Begin creates the journal.
func NewStreamWriter(path, episodeID string, channels []StreamChannel, options StreamOptions) (*StreamWriter, error) {
	if options.FlushSteps == 0 {
		options.FlushSteps = defaultFlushSteps
	}
	alignment, err := alignmentOf(options.Alignment)
	if err != nil {
		return nil, err
	}
	if options.FlushSteps < 0 || options.TimeChunkSteps < 0 || options.TimeChunkSteps > maxChunkSteps || options.Fsync > FsyncNever {
		return nil, badInputf("the options %+v are not valid", options)
	}
	w := &StreamWriter{path: path, id: episodeID, options: options, align: alignment, packed: map[string]any{}}
	ids, blocks := map[string]bool{}, map[string]bool{}
	for _, channel := range channels {
		spec, err := w.declare(channel)
		if err != nil {
			return nil, err
		}
		if ids[spec.ID] || blocks[spec.Block] {
			return nil, badInputf("two channels have the id %q or the block %q", spec.ID, spec.Block)
		}
		ids[spec.ID], blocks[spec.Block] = true, true
		w.channels = append(w.channels, spec)
	}
	return w, nil
}

func (w *StreamWriter) declare(channel StreamChannel) (*ChannelSpec, error) {
	block := channel.Block
	if block == "" {
		block = "signal/" + channel.ID
	}
	spec, err := parseSpec((&ChannelSpec{channel.ID, channel.DType, channel.Shape, block, channel.Attributes}).document())
	if err != nil {
		return nil, asBadInput(err, "the channel cannot be recorded")
	}
	if lane, _, ok := laneOf(block); !ok || lane == "residual" {
		return nil, badInputf("the block %q is not in one of signal/, action/, omen/, uncert/", block)
	}
	if err := channel.Compression.check(); err != nil {
		return nil, err
	}
	if channel.Compression.Codec != None {
		var level any
		if channel.Compression.Level != 0 {
			level = channel.Compression.Level
		}
		w.packed[block] = []any{channel.Compression.Codec.String(), level}
	}
	return spec, nil
}

// PartialPath returns the path of the journal.
func (w *StreamWriter) PartialPath() string { return w.path + journalSuffix }

// StepCount returns the number of steps written so far, flushed or not.
func (w *StreamWriter) StepCount() int { return w.steps }

// FlushedSteps returns the number of steps in the journal, which survive a crash.
func (w *StreamWriter) FlushedSteps() int { return w.flushed }

// Begin creates the journal, and owns it. The kind of the error is AlreadyExists if the file or a journal with steps
// exists, and Conflict if another writer owns the journal.
func (w *StreamWriter) Begin(begin Begin) error {
	if w.isBegun {
		return badInputf("the episode has already begun")
	}
	document, err := episodeDocument(&Episode{ID: w.id, EnvID: begin.EnvID, Timebase: begin.Timebase, Metadata: begin.Metadata, Attributes: begin.Attributes})
	if err != nil {
		return err
	}
	w.parts = append([]*ChannelSpec{}, w.channels...)
	for _, name := range seriesNames {
		if name != blockTimestamps || begin.Timebase.kind() == TimestampsNS {
			w.parts = append(w.parts, &ChannelSpec{name, seriesDTypes[name], []int{}, name, nil})
		}
	}
	if err := w.makeBuffers(); err != nil {
		return err
	}
	payload, err := w.describe(document)
	if err != nil {
		return err
	}
	if err := checkRecordable(payload); err != nil {
		return err
	}
	if err := w.claim(); err != nil {
		return explainOS(err, w.PartialPath())
	}
	if err := w.append(recordBegin, 0, append(make([]byte, recordBytes), payload...)); err != nil {
		// A journal without its first record is useless.
		os.Remove(w.PartialPath())
		w.release()
		return err
	}
	w.isBegun = true
	return nil
}

func (w *StreamWriter) makeBuffers() error {
	stepBytes := sumStepBytes(w.parts)
	if stepBytes > maxRecordBytes {
		return errorf(LimitExceeded, "one step takes %d bytes; the most is %d", stepBytes, maxRecordBytes)
	}
	w.rows = max(1, min(w.options.FlushSteps, bufferBytes/stepBytes))
	w.record = make([]byte, recordBytes+w.rows*stepBytes)
	w.widths, w.starts, w.pending = nil, nil, make([][]byte, len(w.channels))
	at := recordBytes
	for _, part := range w.parts {
		w.widths = append(w.widths, part.stepBytes())
		w.starts = append(w.starts, at)
		at += w.rows * part.stepBytes()
	}
	return nil
}

func (w *StreamWriter) describe(episode map[string]any) ([]byte, error) {
	parts := []any{}
	for _, part := range w.parts {
		parts = append(parts, part.document())
	}
	return encodeJSON(map[string]any{
		"v":            1,
		"episode":      episode,
		"parts":        parts,
		"buffer_steps": w.rows,
		"save": map[string]any{
			"alignment": w.align, "time_chunk_steps": w.options.TimeChunkSteps, "seal": w.options.Seal, "compression": w.packed,
		},
	})
}

// checkRecordable refuses a first record from which no file can be assembled, before steps are recorded.
func checkRecordable(payload []byte) error {
	j, err := parseBegin(payload)
	if err != nil {
		return asBadInput(err, "the episode cannot be recorded")
	}
	settings, err := parseSettings(j.document)
	if err != nil {
		return asBadInput(err, "the episode cannot be recorded")
	}
	metadata, err := j.metadata(nil)
	if err != nil {
		return asBadInput(err, "the episode cannot be recorded")
	}
	var names []string
	for _, block := range metadata {
		names = append(names, block.name)
	}
	for _, part := range j.parts {
		names = append(names, part.Block)
	}
	return checkNames(names, settings.alignment)
}

// claim creates the journal, or takes over one that a recording left before its first step.
func (w *StreamWriter) claim() error {
	file, err := claimJournal(w.PartialPath(), os.O_RDWR|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return err
	}
	w.file = file
	if err := w.takeOver(); err != nil {
		w.release()
		return err
	}
	return nil
}

func (w *StreamWriter) takeOver() error {
	isFree, err := isUnstarted(w.file)
	if err != nil {
		return err
	}
	if !isFree {
		return errorf(AlreadyExists, "%s is left from an earlier recording", w.PartialPath()).withHint("Call Recover on it, or remove it.")
	}
	// Checked with the journal in hand: the last owner renames its file before it gives up the journal.
	if _, err := os.Stat(w.path); err == nil {
		if err := removeFile(w.PartialPath()); err != nil {
			return err
		}
		return errorf(AlreadyExists, "%s already exists", w.path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := w.file.Truncate(0); err != nil {
		return err
	}
	if w.options.Fsync == FsyncFlush {
		return syncDirectory(filepath.Dir(w.path))
	}
	return nil
}

// Write adds one step. If a value is missing, unknown or does not fit, the kind of the error is SchemaMismatch, and
// nothing is added.
func (w *StreamWriter) Write(step Step) error {
	if err := w.own(); err != nil {
		return err
	}
	if w.hasEnd {
		return errorf(BadInput, "the episode has ended").withHint("Call End again if it failed.")
	}
	// A failed flush may have left the buffers full.
	if w.steps-w.flushed == w.rows {
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if err := w.checkStep(step); err != nil {
		return err
	}
	row := w.steps - w.flushed
	for number, data := range w.pending {
		width := w.widths[number]
		copy(w.record[w.starts[number]+row*width:], data)
	}
	w.putSeries(step, row)
	w.steps++
	if row+1 == w.rows {
		return w.Flush()
	}
	return nil
}

func (w *StreamWriter) checkStep(step Step) error {
	if len(step.Values) != len(w.channels) {
		return w.nameMismatch(step.Values)
	}
	w.scratch = w.scratch[:0]
	for number, spec := range w.channels {
		value, ok := step.Values[spec.ID]
		if !ok {
			return w.nameMismatch(step.Values)
		}
		data, why := w.bytesOf(value, spec, w.widths[number])
		if why != "" {
			return errorf(SchemaMismatch, "step %d: channel %q %s", w.steps, spec.ID, why)
		}
		w.pending[number] = data
	}
	hasTimestamps := w.parts[len(w.parts)-1].Block == blockTimestamps
	if step.TimestampNS != 0 && !hasTimestamps {
		return errorf(SchemaMismatch, "step %d: TimestampNS is %d, but the timebase has no timestamps", w.steps, step.TimestampNS)
	}
	return nil
}

func (w *StreamWriter) nameMismatch(values map[string]any) error {
	differing := map[string]bool{}
	for _, spec := range w.channels {
		if _, ok := values[spec.ID]; !ok {
			differing[spec.ID] = true
		}
	}
	for name := range values {
		isKnown := false
		for _, spec := range w.channels {
			isKnown = isKnown || spec.ID == name
		}
		if !isKnown {
			differing[name] = true
		}
	}
	names := make([]string, 0, len(differing))
	for name := range differing {
		names = append(names, name)
	}
	sort.Strings(names)
	return errorf(SchemaMismatch, "step %d has missing or unknown channels: %s", w.steps, strings.Join(names, ", "))
}

// Flush appends the buffered steps to the journal. After a failure they stay buffered, for another attempt.
func (w *StreamWriter) Flush() error {
	if err := w.own(); err != nil {
		return err
	}
	count := w.steps - w.flushed
	if count == 0 {
		return nil
	}
	record := w.record
	if count < w.rows {
		record = make([]byte, recordBytes, recordBytes+count*len(w.record)/w.rows)
		for number, start := range w.starts {
			record = append(record, w.record[start:start+count*w.widths[number]]...)
		}
	}
	return w.append(recordSteps, count, record)
}

// append writes one record, whose first 40 bytes are free for its header.
func (w *StreamWriter) append(kind uint8, count int, record []byte) error {
	head := recordHead{kind, w.sequence, w.flushed, count, len(record) - recordBytes, checksum(0, record[recordBytes:])}
	head.encode(record)
	err := w.appendBytes(record)
	if err != nil {
		w.file.Truncate(int64(w.size))
		return explainOS(err, w.PartialPath())
	}
	w.size += len(record)
	w.sequence++
	w.flushed += count
	return nil
}

func (w *StreamWriter) appendBytes(record []byte) error {
	// A failure may have left a record that was not counted.
	size, err := fileSize(w.file)
	if err == nil && size != w.size {
		err = w.file.Truncate(int64(w.size))
	}
	if err == nil {
		_, err = w.file.Write(record)
	}
	if err == nil && w.options.Fsync == FsyncFlush {
		err = syncData(w.file)
	}
	return err
}

// End flushes, assembles the file, renames it into place and removes the journal. After a failure, such as a full
// disk, it can be called again.
func (w *StreamWriter) End() error {
	if err := w.own(); err != nil {
		return err
	}
	if !w.hasEnd {
		if err := w.Flush(); err != nil {
			return err
		}
		if err := w.append(recordEnd, 0, make([]byte, recordBytes)); err != nil {
			return err
		}
		w.hasEnd = true
	}
	if err := w.finish(); err != nil {
		return explainOS(err, w.PartialPath())
	}
	w.release()
	return nil
}

func (w *StreamWriter) finish() error {
	if w.options.Fsync == FsyncEnd {
		if err := syncData(w.file); err != nil {
			return err
		}
	}
	j, err := readJournal(w.file)
	if err != nil {
		return err
	}
	if !j.isComplete || j.steps != w.steps || !isAt(w.file, w.PartialPath()) {
		return corruptf("another process changed %s: %s", w.PartialPath(), j.problem)
	}
	if err := j.assemble(w.file, w.path, nil, w.options.Fsync == FsyncNever); err != nil {
		return err
	}
	// The journal is removed by its owner, so that no other recording can take its name before.
	return removeFile(w.PartialPath())
}

// Close flushes an episode that was not ended, and gives up its journal, which stays for Recover. It does nothing
// after End, so that it can be deferred.
func (w *StreamWriter) Close() error {
	if w.file == nil {
		return nil
	}
	var err error
	if !w.hasEnd {
		err = w.Flush()
	}
	w.release()
	return err
}

func (w *StreamWriter) release() {
	if w.file != nil {
		w.file.Close()
		w.file = nil
	}
}

func (w *StreamWriter) own() error {
	if w.file == nil {
		return errorf(BadInput, "no episode is being recorded").withHint("Call Begin first.")
	}
	return nil
}
