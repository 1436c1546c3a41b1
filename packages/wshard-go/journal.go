package wshard

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// The journal of a running recording: an append-only file of records with checksums. Readers detect a record that a
// crash left incomplete, and accept the records before it. Implements "Journal" of docs/specs/wshard.md.

const (
	journalMagic  = "WSJ1"
	recordBytes   = 40
	recordBegin   = 1
	recordSteps   = 2
	recordEnd     = 3
	journalSuffix = ".partial"
	claimAttempts = 10
)

// recordHead is the header of a record.
type recordHead struct {
	kind     uint8
	sequence uint32
	first    int
	count    int
	payload  int
	checksum uint32
}

func (h recordHead) encode(out []byte) {
	word := binary.LittleEndian
	copy(out, journalMagic)
	out[4], out[5], out[6], out[7] = h.kind, 0, 0, 0
	word.PutUint32(out[8:], h.sequence)
	word.PutUint64(out[12:], uint64(h.first))
	word.PutUint32(out[20:], uint32(h.count))
	word.PutUint64(out[24:], uint64(h.payload))
	word.PutUint32(out[32:], h.checksum)
	word.PutUint32(out[36:], checksum(0, out[:36]))
}

func parseRecord(raw []byte) (recordHead, bool) {
	word := binary.LittleEndian
	isValid := string(raw[:4]) == journalMagic && checksum(0, raw[:36]) == word.Uint32(raw[36:])
	payload, first := word.Uint64(raw[24:]), word.Uint64(raw[12:])
	const most = 1 << 62 // larger numbers are equally impossible
	if payload > most {
		payload = most
	}
	if first > most {
		first = most
	}
	return recordHead{raw[4], word.Uint32(raw[8:]), int(first), int(word.Uint32(raw[20:])), int(payload), word.Uint32(raw[32:])}, isValid
}

// journal has the valid records of a journal. A steps record holds the series of parts, one after another. problem is
// the reason why reading stopped before the end of the file.
type journal struct {
	document   map[string]any
	episode    map[string]any
	parts      []*ChannelSpec
	offsets    []int
	counts     []int
	steps      int
	isComplete bool
	goodBytes  int
	lostBytes  int
	problem    string
}

// readJournal reads and verifies every record. It fails only if the first record is not valid.
func readJournal(file *os.File) (*journal, error) {
	size, err := fileSize(file)
	if err != nil {
		return nil, err
	}
	head, problem, err := readRecord(file, 0, 0, size)
	if err != nil {
		return nil, err
	}
	if problem == "" && (head.kind != recordBegin || head.payload > maxJSONBytes) {
		problem = "another kind of record"
	}
	if problem != "" {
		refused := errorf(Corrupt, "the journal has no valid first record: %s", problem)
		if isUnstarted, err := isUnstarted(file); err == nil && isUnstarted {
			return nil, refused.withHint("It has no steps. Record again under the same name, or remove it.")
		}
		return nil, refused
	}
	begin := make([]byte, head.payload)
	if err := readFull(file, begin, recordBytes); err != nil {
		return nil, err
	}
	j, err := parseBegin(begin)
	if err != nil {
		return nil, err
	}
	return j, j.readSteps(file, recordBytes+head.payload, size)
}

func (j *journal) readSteps(file *os.File, at, size int) error {
	stepBytes := sumStepBytes(j.parts)
	for sequence := uint32(1); at < size && !j.isComplete; sequence++ {
		head, problem, err := readRecord(file, at, sequence, size)
		if err != nil {
			return err
		}
		if problem == "" {
			problem = head.findMismatch(j.steps, stepBytes)
		}
		if problem != "" {
			j.problem = problem
			break
		}
		j.isComplete = head.kind == recordEnd
		if !j.isComplete {
			j.offsets = append(j.offsets, at+recordBytes)
			j.counts = append(j.counts, head.count)
		}
		at += recordBytes + head.payload
		j.steps += head.count
	}
	j.goodBytes, j.lostBytes = at, size-at
	return nil
}

// findMismatch returns the reason why a valid record cannot follow those before it.
func (h recordHead) findMismatch(steps, stepBytes int) string {
	if h.kind != recordSteps && h.kind != recordEnd {
		return fmt.Sprintf("there is a record of the kind %d among the steps", h.kind)
	}
	if h.first != steps {
		return fmt.Sprintf("a record begins at step %d instead of %d", h.first, steps)
	}
	if h.payload != multiply(h.count, stepBytes) || (h.kind == recordEnd) == (h.count > 0) {
		return fmt.Sprintf("a record of %d steps has %d bytes", h.count, h.payload)
	}
	return ""
}

// readRecord returns the header of a valid record, else the problem.
func readRecord(file *os.File, at int, sequence uint32, size int) (recordHead, string, error) {
	if size-at < recordBytes {
		return recordHead{}, fmt.Sprintf("the %d bytes at %d are too few for a record", size-at, at), nil
	}
	var raw [recordBytes]byte
	if err := readFull(file, raw[:], at); err != nil {
		return recordHead{}, "", err
	}
	head, isValid := parseRecord(raw[:])
	switch {
	case !isValid:
		return head, fmt.Sprintf("the record at %d has a damaged header", at), nil
	case head.sequence != sequence:
		return head, fmt.Sprintf("the record at %d has the number %d instead of %d", at, head.sequence, sequence), nil
	case head.payload > min(maxRecordBytes, size-at-recordBytes):
		return head, fmt.Sprintf("the record at %d promises %d bytes, which the file does not have", at, head.payload), nil
	}
	found, buffer := uint32(0), make([]byte, min(pieceBytes, head.payload))
	for start := 0; start < head.payload; start += pieceBytes {
		piece := buffer[:min(pieceBytes, head.payload-start)]
		if err := readFull(file, piece, at+recordBytes+start); err != nil {
			return head, "", err
		}
		found = checksum(found, piece)
	}
	if found != head.checksum {
		return head, fmt.Sprintf("the record at %d has a damaged payload", at), nil
	}
	return head, "", nil
}

// pieces passes the bytes of one part over all steps, record by record.
func (j *journal) pieces(file *os.File, number int) pieceSource {
	before, width := sumStepBytes(j.parts[:number]), j.parts[number].stepBytes()
	return func(pass func([]byte) error) error {
		if width == 0 {
			return nil
		}
		var buffer []byte
		for i, offset := range j.offsets {
			size := width * j.counts[i]
			if cap(buffer) < size {
				buffer = make([]byte, size)
			}
			if err := readFull(file, buffer[:size], offset+before*j.counts[i]); err != nil {
				return err
			}
			if err := pass(buffer[:size]); err != nil {
				return err
			}
		}
		return nil
	}
}

func sumStepBytes(parts []*ChannelSpec) int {
	total := 0
	for _, part := range parts {
		if total += part.stepBytes(); total < 0 {
			return 1<<63 - 1
		}
	}
	return total
}

// parseBegin parses the first record: its document, and the parts of a step.
func parseBegin(payload []byte) (*journal, error) {
	document, err := decodeObject(payload, "the first record of the journal")
	if err != nil {
		return nil, err
	}
	if version := document["v"]; version != any(int64(1)) && version != any(1.0) {
		return nil, corruptf("the journal has the version %v", version)
	}
	listed, isList := document["parts"].([]any)
	episode, isObject := document["episode"].(map[string]any)
	if !isList || !isObject {
		return nil, corruptf("the journal does not describe its episode and parts")
	}
	if len(listed) > maxChannels {
		return nil, corruptf("the journal records %d parts; the most is %d", len(listed), maxChannels)
	}
	j := &journal{document: document, episode: episode}
	for _, item := range listed {
		if _, ok := item.(map[string]any); !ok {
			return nil, corruptf("the journal lists a part that is not an object")
		}
	}
	for _, item := range listed {
		part, err := parseSpec(item.(map[string]any))
		if err != nil {
			return nil, err
		}
		j.parts = append(j.parts, part)
	}
	return j, nil
}

// isUnstarted reports whether the file has no byte after a first record, so that it never held a step.
func isUnstarted(file *os.File) (bool, error) {
	size, err := fileSize(file)
	if err != nil {
		return false, err
	}
	raw := make([]byte, min(size, recordBytes))
	if err := readFull(file, raw, 0); err != nil {
		return false, err
	}
	if size < recordBytes {
		return strings.HasPrefix(journalMagic, string(raw[:min(size, len(journalMagic))])), nil
	}
	head, isValid := parseRecord(raw)
	return isValid && head.kind == recordBegin && size <= recordBytes+head.payload, nil
}

// hasLaterRecord reports whether a valid header follows the bytes that could not be read: flushed steps behind the
// damage.
func hasLaterRecord(file *os.File, j *journal) (bool, error) {
	buffer := make([]byte, pieceBytes)
	end := j.goodBytes + j.lostBytes
	for start := j.goodBytes + 1; start+recordBytes <= end; {
		piece := buffer[:min(pieceBytes, end-start)]
		if err := readFull(file, piece, start); err != nil {
			return false, err
		}
		for at := 0; ; at++ {
			next := bytes.Index(piece[at:], []byte(journalMagic))
			if next < 0 || start+at+next+recordBytes > end {
				break
			}
			at += next
			var raw [recordBytes]byte
			if err := readFull(file, raw[:], start+at); err != nil {
				return false, err
			}
			if _, isValid := parseRecord(raw[:]); isValid {
				return true, nil
			}
		}
		// A magic number may straddle two pieces.
		start += max(1, len(piece)-len(journalMagic)+1)
	}
	return false, nil
}

// claimJournal opens a journal as its only owner, with a lock that ends with the process.
func claimJournal(path string, flags int) (*os.File, error) {
	for attempt := 0; attempt < claimAttempts; attempt++ {
		file, err := os.OpenFile(path, flags, 0o666)
		if err != nil {
			return nil, err
		}
		isLocked, err := lockFile(file)
		if err != nil {
			file.Close()
			return nil, err
		}
		if !isLocked {
			file.Close()
			break
		}
		if isAt(file, path) {
			return file, nil
		}
		file.Close() // the last owner has just removed or replaced it
	}
	return nil, errorf(Conflict, "%s is in use by another recording or recovery", path).
		withHint("Wait until the recording has ended. Read a running one with Load.")
}

// isAt reports whether the path still names this file. A lock on a file without a name protects nothing.
func isAt(file *os.File, path string) bool {
	named, err := os.Stat(path)
	if err != nil {
		return false
	}
	status, err := file.Stat()
	return err == nil && os.SameFile(named, status)
}

func fileSize(file *os.File) (int, error) {
	status, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return int(status.Size()), nil
}

func readFull(file *os.File, out []byte, at int) error {
	count, err := file.ReadAt(out, int64(at))
	if count == len(out) {
		return nil
	}
	if err == io.EOF {
		return corruptf("the journal was truncated at byte %d while it was read", at+count)
	}
	return explainOS(err, filepath.Base(file.Name()))
}
