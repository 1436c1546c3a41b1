package wshard

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Assembly of an episode file from a journal, at the end of a recording or after a crash. Implements "Recovery" of
// docs/specs/wshard.md.

// Recovery is the result of Recover.
type Recovery struct {
	Path      string `json:"path"`
	EpisodeID string `json:"episode_id"`
	Steps     int    `json:"step_count"`
	// IsComplete means that the recording had ended and nothing is missing.
	IsComplete bool `json:"is_complete"`
	LostBytes  int  `json:"lost_bytes"`
	// UnflushedAtMost steps were only in memory when the recording stopped.
	UnflushedAtMost int `json:"unflushed_steps_at_most"`
	// Problem is the reason why the LostBytes at the end of the journal are not valid.
	Problem string `json:"problem,omitempty"`
}

// RecoverOptions are options of Recover.
type RecoverOptions struct {
	Output        string // default: the path of the journal without .partial
	RemovePartial bool
}

// Recover writes an episode file with every flushed step of a journal, and reports the loss. A file at the output with
// the same episode counts as written. An error of the kind Conflict if the recording still runs. The journal stays
// unless RemovePartial, and also if flushed steps after a damaged record could not be read.
func Recover(path string, options RecoverOptions) (*Recovery, error) {
	target := options.Output
	if target == "" {
		if target = strings.TrimSuffix(path, journalSuffix); target == path {
			return nil, errorf(BadInput, "%s does not end in %s", path, journalSuffix).withHint("Pass Output.")
		}
	}
	file, err := claimJournal(path, os.O_RDWR)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		// A journal that this user may only read can still be recovered into another directory.
		file, err = claimJournal(path, os.O_RDONLY)
	}
	if err != nil {
		return nil, explainOS(err, path)
	}
	defer file.Close()
	found, err := recoverFile(file, path, target, options.RemovePartial)
	return found, explainOS(err, path)
}

func recoverFile(file *os.File, path, target string, isRemoved bool) (*Recovery, error) {
	j, err := readJournal(file)
	if err != nil {
		return nil, err
	}
	missing := map[string]any{}
	if !j.isComplete {
		missing["recovered"] = map[string]any{"lost_bytes": j.lostBytes}
	}
	if err := j.assemble(file, target, missing, false); err != nil {
		return nil, err
	}
	id, _ := j.episode["episode_id"].(string)
	out := &Recovery{target, id, j.steps, j.isComplete, j.lostBytes, 0, j.problem}
	if buffered, ok := countOf(j.document["buffer_steps"], maxChunkSteps); ok && !j.isComplete {
		out.UnflushedAtMost = buffered
	}
	if !isRemoved {
		return out, nil
	}
	if j.lostBytes > 0 {
		hasMore, err := hasLaterRecord(file, j)
		if err != nil {
			return nil, err
		}
		if hasMore {
			out.Problem += "; later records cannot be read, so the journal stays"
			return out, nil
		}
	}
	if size, err := fileSize(file); err != nil || size != j.goodBytes+j.lostBytes {
		return nil, errorf(Conflict, "%s grew while it was recovered, so it was not removed", path)
	}
	return out, removeFile(path)
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// assemble writes the file. It reads the journal once for each block; memory is one record. The caller owns the
// journal. The temporary file is named after it, so that the next owner finds and removes a file that a killed process
// left. A target with the same content stays.
func (j *journal) assemble(file *os.File, target string, extra map[string]any, isVolatile bool) error {
	name, err := savingName(file)
	if err != nil {
		return err
	}
	saving := filepath.Join(filepath.Dir(target), name)
	if err := removeFile(saving); err != nil {
		return err
	}
	if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
		return j.write(file, target, extra, containerOptions{temporary: saving, isVolatile: isVolatile})
	} else if err != nil {
		return err
	}
	// A process may die after the file has its name, and before the journal is removed.
	defer os.Remove(saving)
	if err := j.write(file, saving, extra, containerOptions{isVolatile: true}); err != nil {
		return err
	}
	left, err := Identity(saving)
	right, other := Identity(target)
	if err != nil || other != nil || left != right {
		return errorf(AlreadyExists, "%s already exists", target).withHint("Pass another output, or move the file.")
	}
	return nil
}

func (j *journal) write(file *os.File, target string, extra map[string]any, options containerOptions) error {
	settings, err := parseSettings(j.document)
	if err != nil {
		return err
	}
	metadata, err := j.metadata(extra)
	if err != nil {
		return err
	}
	var plans []blockPlan
	for _, block := range metadata {
		plans = append(plans, planBytes(block.name, block.data, contentJSON, 0))
	}
	for number := range j.parts {
		plans = append(plans, j.plan(file, number, settings))
	}
	options.role, options.alignment, options.isSealed = roleEpisode, settings.alignment, settings.isSealed
	_, err = writeContainer(target, plans, options)
	return err
}

func (j *journal) plan(file *os.File, number int, settings *recordSettings) blockPlan {
	part := j.parts[number]
	plan := blockPlan{name: part.Block, size: part.stepBytes() * j.steps, pieces: j.pieces(file, number)}
	compression, chunkBytes := settings.compression[part.Block], 0
	if compression.Codec == Zstd {
		chunkBytes = multiply(settings.chunkSteps, part.stepBytes())
	}
	// A recording must not fail at its end, so blocks that readers would not decode stay uncompressed.
	if (compression.Codec == LZ4 && plan.size > maxLZ4Recorded) || !isDecodable(plan.size, chunkBytes) {
		return plan
	}
	plan.compression, plan.chunkBytes = compression, chunkBytes
	return plan
}

// metadata returns the metadata blocks of the episode so far.
func (j *journal) metadata(extra map[string]any) ([]namedBytes, error) {
	document := map[string]any{}
	for _, members := range []map[string]any{j.episode, extra, {"length_T": j.steps}} {
		for key, value := range members {
			document[key] = value
		}
	}
	var channels, lanes []*ChannelSpec
	for _, part := range j.parts {
		switch prefix, _, _ := strings.Cut(part.Block, "/"); {
		case !strings.Contains(part.Block, "/"):
		case prefix == "signal" || prefix == "action":
			channels = append(channels, part)
		case prefix == "omen" || prefix == "uncert":
			lanes = append(lanes, part)
		}
	}
	blocks, err := newMetadata(document, j.steps, channels, lanes)
	if err != nil {
		return nil, err
	}
	info, err := parseInfo(asMap(blocks))
	if err != nil {
		return nil, err
	}
	return blocks, j.checkParts(info)
}

// checkParts checks that the parts form a valid episode: a journal is foreign input like any file.
func (j *journal) checkParts(info *Info) error {
	seen := map[string]bool{}
	isRepeated := false
	for _, part := range j.parts {
		size := multiply(part.stepBytes(), j.steps)
		found, err := findBlockType(part.Block, size, info)
		if err != nil {
			return err
		}
		isChannel := strings.HasPrefix(part.Block, "signal/") || strings.HasPrefix(part.Block, "action/")
		isSame := found.DType == part.DType && (isChannel || sameShape(found.Shape, part.Shape))
		if strings.HasPrefix(part.Block, "meta/") || !found.IsDeclared || !isSame {
			return corruptf("the journal records %q as %s%v", part.Block, part.DType, part.Shape)
		}
		if size == 0 {
			// An empty part may still have an impossible shape.
			if _, err := rowsOf(nil, part.DType, j.steps, part.Shape); err != nil {
				return err
			}
		}
		isRepeated = isRepeated || seen[part.Block]
		seen[part.Block] = true
	}
	if isRepeated || (info.Timebase.Type == TimestampsNS && !seen[blockTimestamps]) {
		return corruptf("the journal records a block twice, or lacks the timestamps of its timebase")
	}
	return nil
}

// recordSettings are the save options of a recording.
type recordSettings struct {
	alignment   int
	chunkSteps  int
	isSealed    bool
	compression map[string]Compression
}

func parseSettings(document map[string]any) (*recordSettings, error) {
	refused := corruptf("the journal has no valid save options: %v", document["save"])
	options, _ := document["save"].(map[string]any)
	blocks, ok := options["compression"].(map[string]any)
	if !ok {
		return nil, refused
	}
	out := &recordSettings{compression: map[string]Compression{}}
	for block, value := range blocks {
		pair, ok := value.([]any)
		if !ok || len(pair) != 2 {
			return nil, refused
		}
		name, _ := pair[0].(string)
		level, isLevel := pair[1].(int64)
		compression, err := ParseCompression(name, int(level))
		if err != nil || (!isLevel && pair[1] != nil) {
			return nil, refused
		}
		out.compression[block] = compression
	}
	alignment, isAlignmentCount := countOf(options["alignment"], 64)
	steps, isSteps := countOf(options["time_chunk_steps"], maxChunkSteps)
	isSealed, isSeal := options["seal"].(bool)
	if !isAlignmentCount || !isAlignment(alignment) || !isSteps || !isSeal {
		return nil, refused
	}
	out.alignment, out.chunkSteps, out.isSealed = alignment, steps, isSealed
	return out, nil
}

// loadJournalFile loads the steps flushed so far. A writer may still append to the journal.
func loadJournalFile(path string, channels []string) (*Episode, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, explainOS(err, path)
	}
	defer file.Close()
	e, err := loadJournal(file, channels)
	return e, explainOS(err, path)
}

func loadJournal(file *os.File, channels []string) (*Episode, error) {
	j, err := readJournal(file)
	if err != nil {
		return nil, err
	}
	metadata, err := j.metadata(nil)
	if err != nil {
		return nil, err
	}
	info, err := parseInfo(asMap(metadata))
	if err != nil {
		return nil, err
	}
	e := &Episode{ID: info.ID, Length: info.Length, EnvID: info.EnvID, Timebase: info.Timebase, Metadata: info.Metadata, Attributes: info.Attributes}
	wanted, known := map[string]bool{}, map[string]bool{}
	for _, name := range channels {
		wanted[name] = true
	}
	for number, part := range j.parts {
		prefix, rest, isLane := laneOf(part.Block)
		isChannel := strings.Contains(part.Block, "/") && part.Block != blockTimestamps
		if channels != nil && isChannel && !wanted[part.ID] && !wanted[part.Block] {
			continue
		}
		known[part.ID], known[part.Block] = true, true
		data := make([]byte, 0, part.stepBytes()*j.steps)
		err := j.pieces(file, number)(func(piece []byte) error { data = append(data, piece...); return nil })
		if err != nil {
			return nil, err
		}
		rows, err := rowsOf(data, part.DType, j.steps, part.Shape)
		if err != nil {
			return nil, err
		}
		if isSeries(part.Block) {
			*e.series(part.Block) = rows
		} else if isLane && prefix != "residual" {
			group := e.group(prefix)
			*group = append(*group, &Channel{Name: rest, ID: part.ID, Data: rows, Attributes: part.Attributes})
		}
	}
	for name := range wanted {
		if !known[name] {
			return nil, badInputf("there is no channel %q in the journal", name)
		}
	}
	return e, nil
}
