package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"wshard"
)

// open opens a path, a manifest of chunks, or an http address.
func open(name string) (wshard.EpisodeReader, error) {
	if strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://") {
		file, err := wshard.OpenHTTP(context.Background(), name, wshard.HTTPOptions{})
		if err != nil {
			return nil, err
		}
		return file, nil
	}
	return wshard.OpenEpisode(name, wshard.Options{})
}

// parts returns the files of an episode.
func parts(file wshard.EpisodeReader) []*wshard.File {
	if joined, ok := file.(*wshard.JoinedFile); ok {
		return joined.Parts
	}
	return []*wshard.File{file.(*wshard.File)}
}

type blockLine struct {
	Name   string `json:"name"`
	DType  string `json:"dtype"`
	Shape  []int  `json:"shape"`
	Codec  string `json:"codec"`
	Stored int    `json:"stored_bytes"`
	Size   int    `json:"size_bytes"`
}

type infoReport struct {
	ID       string  `json:"episode_id"`
	EnvID    string  `json:"env_id"`
	Length   int     `json:"length"`
	Timebase string  `json:"timebase"`
	Hz       float64 `json:"hz,omitempty"`
	Chunks   int     `json:"chunks"`
	IsSealed bool    `json:"is_sealed"`
	// IsJournal means that the recording runs, or waits for its recovery.
	IsJournal bool           `json:"is_journal"`
	Metadata  map[string]any `json:"metadata"`
	Blocks    []blockLine    `json:"blocks"`
}

func (c *command) info(name string) error {
	if wshard.IsJournal(name) {
		return c.infoOfJournal(name)
	}
	file, err := open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Info()
	if err != nil {
		return err
	}
	report := infoReport{Chunks: len(parts(file)), IsSealed: parts(file)[0].IsSealed(), Blocks: []blockLine{}}
	if info != nil {
		report.ID, report.EnvID, report.Length, report.Metadata = info.ID, info.EnvID, info.Length, info.Metadata
		report.Timebase, report.Hz = info.Timebase.Type, info.Timebase.Hz()
	}
	for _, name := range file.Blocks() {
		line, err := describe(file, name)
		if err != nil {
			return err
		}
		report.Blocks = append(report.Blocks, line)
	}
	if c.json {
		return c.print(report)
	}
	return c.printInfo(report)
}

// infoOfJournal describes the steps of a recording that are flushed so far.
func (c *command) infoOfJournal(name string) error {
	e, err := wshard.Load(name)
	if err != nil {
		return err
	}
	report := infoReport{ID: e.ID, EnvID: e.EnvID, Length: e.Length, Timebase: e.Timebase.Type, Hz: e.Timebase.Hz(),
		IsJournal: true, Metadata: e.Metadata, Blocks: []blockLine{}}
	add := func(block string, data *wshard.Array) {
		if data != nil {
			report.Blocks = append(report.Blocks, blockLine{block, string(data.DType), data.Shape, "journal", len(data.Data), len(data.Data)})
		}
	}
	for _, group := range []struct {
		prefix   string
		channels wshard.Channels
	}{{"signal/", e.Observations}, {"action/", e.Actions}, {"omen/", e.Omens}, {"uncert/", e.Uncertainties}} {
		for _, channel := range group.channels {
			add(group.prefix+channel.Name, channel.Data)
		}
	}
	add("reward", e.Rewards)
	add("done", e.Terminations)
	add("truncated", e.Truncations)
	add("time/timestamps_ns", e.TimestampsNS)
	if c.json {
		return c.print(report)
	}
	return c.printInfo(report)
}

func describe(file wshard.EpisodeReader, name string) (blockLine, error) {
	reader, err := file.Rows(name)
	if err != nil {
		return blockLine{}, err
	}
	found, err := reader.Type()
	if err != nil {
		return blockLine{}, err
	}
	line := blockLine{Name: name, DType: string(found.DType), Shape: append([]int{found.Rows}, found.Shape...)}
	for _, part := range parts(file) {
		one, err := part.Block(name)
		if err != nil {
			return blockLine{}, err
		}
		entry := one.Entry()
		line.Stored += entry.Stored
		line.Size += entry.Size
		line.Codec = entry.Codec.String()
		if entry.IsChunked {
			line.Codec += " chunks"
		}
	}
	return line, nil
}

func (c *command) printInfo(report infoReport) error {
	fmt.Fprintf(c.out, "episode   %s\n", report.ID)
	if report.EnvID != "" {
		fmt.Fprintf(c.out, "env       %s\n", report.EnvID)
	}
	fmt.Fprintf(c.out, "steps     %d\n", report.Length)
	switch {
	case report.Hz > 0:
		fmt.Fprintf(c.out, "rate      %g Hz\n", report.Hz)
	case report.Timebase == wshard.TimestampsNS:
		fmt.Fprintln(c.out, "rate      a timestamp for each step")
	}
	if report.Chunks > 1 {
		fmt.Fprintf(c.out, "chunks    %d\n", report.Chunks)
	}
	if report.IsJournal {
		fmt.Fprintln(c.out, "journal   the steps flushed so far")
	}
	if report.IsSealed {
		fmt.Fprintln(c.out, "sealed    yes")
	}
	fmt.Fprintln(c.out)
	table := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "BLOCK\tDTYPE\tSHAPE\tCODEC\tSTORED\tSIZE")
	for _, line := range report.Blocks {
		fmt.Fprintf(table, "%s\t%s\t%v\t%s\t%d\t%d\n", line.Name, line.DType, line.Shape, line.Codec, line.Stored, line.Size)
	}
	return table.Flush()
}

func (c *command) cat(name, block, rows string, isRaw bool) error {
	file, err := open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	reader, err := file.Rows(block)
	if err != nil {
		return err
	}
	found, err := reader.Type()
	if err != nil {
		return err
	}
	var array *wshard.Array
	if rows == "" {
		array, err = reader.Read()
	} else {
		var start, stop int
		if start, stop, err = parseRows(rows, found.Rows); err == nil {
			array, err = reader.Window(start, stop)
		}
	}
	if err != nil {
		return err
	}
	if isRaw || (strings.HasPrefix(block, "meta/") && !found.IsDeclared) {
		_, err := c.out.Write(array.Data)
		if err == nil && !isRaw {
			_, err = fmt.Fprintln(c.out)
		}
		return err
	}
	return c.printRows(array)
}

// parseRows parses A:B, where both are optional.
func parseRows(text string, rows int) (int, int, error) {
	first, last, ok := strings.Cut(text, ":")
	start, stop := 0, rows
	var err error
	if ok && first != "" {
		start, err = strconv.Atoi(first)
	}
	if ok && last != "" && err == nil {
		stop, err = strconv.Atoi(last)
	}
	if !ok || err != nil {
		return 0, 0, &wshard.Error{Kind: wshard.BadInput, Message: fmt.Sprintf("--rows %q is not A:B", text)}
	}
	return start, stop, nil
}

// printRows prints the elements of a row on one line, or all rows as JSON. Fractions have the fewest digits that read
// back as the same number of their type.
func (c *command) printRows(array *wshard.Array) error {
	texts, err := textsOf(array)
	if err != nil {
		return err
	}
	width := 1
	for _, size := range array.StepShape() {
		width *= size
	}
	lines := make([]string, array.Len())
	separator := map[bool]string{false: " ", true: ","}[c.json]
	for row := range lines {
		lines[row] = strings.Join(texts[row*width:(row+1)*width], separator)
	}
	if !c.json {
		for _, line := range lines {
			if _, err := fmt.Fprintln(c.out, line); err != nil {
				return err
			}
		}
		return nil
	}
	rows := "[]"
	if len(lines) > 0 {
		rows = "[[" + strings.Join(lines, "],[") + "]]"
	}
	shape := strings.ReplaceAll(fmt.Sprint(array.Shape), " ", ",")
	_, err = fmt.Fprintf(c.out, "{\"dtype\":%q,\"shape\":%s,\"rows\":%s}\n", array.DType, shape, rows)
	return err
}

func textsOf(array *wshard.Array) ([]string, error) {
	switch array.DType {
	case wshard.I64:
		values, err := wshard.Values[int64](array)
		out := make([]string, len(values))
		for i, value := range values {
			out[i] = strconv.FormatInt(value, 10)
		}
		return out, err
	case wshard.U64:
		values, err := wshard.Values[uint64](array)
		out := make([]string, len(values))
		for i, value := range values {
			out[i] = strconv.FormatUint(value, 10)
		}
		return out, err
	}
	values, err := array.Float64s()
	out := make([]string, len(values))
	bits := 64
	if array.DType == wshard.F32 || array.DType == wshard.F16 || array.DType == wshard.BF16 {
		bits = 32
	}
	for i, value := range values {
		switch {
		case array.DType == wshard.Bool:
			out[i] = strconv.FormatBool(value != 0)
		case math.IsNaN(value) || math.IsInf(value, 0):
			out[i] = "null" // JSON has no such number
		default:
			out[i] = strconv.FormatFloat(value, 'g', -1, bits)
		}
	}
	return out, err
}

type verdict struct {
	Path     string `json:"path"`
	IsValid  bool   `json:"is_valid"`
	Identity string `json:"identity,omitempty"`
	Error    string `json:"error,omitempty"`
	Message  string `json:"message,omitempty"`
}

func (c *command) verify(names []string) error {
	verdicts, isDamaged := []verdict{}, false
	for _, name := range names {
		found, err := verifyOne(name)
		one := verdict{Path: name, IsValid: err == nil, Identity: found}
		if err != nil {
			isDamaged = true
			one.Message = err.Error()
			if refused, ok := err.(*wshard.Error); ok {
				one.Error, one.Message = string(refused.Kind), refused.Message
			}
		}
		verdicts = append(verdicts, one)
		if !c.json && err == nil {
			fmt.Fprintf(c.out, "ok       %s  %s\n", found, name)
		} else if !c.json {
			fmt.Fprintf(c.out, "%-8s %s: %s\n", one.Error, name, one.Message)
		}
	}
	if c.json {
		if err := c.print(verdicts); err != nil {
			return err
		}
	}
	if isDamaged {
		return errReported
	}
	return nil
}

// verifyOne reads every byte of an episode, and returns its identity.
func verifyOne(name string) (string, error) {
	file, err := open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	for _, part := range parts(file) {
		if err := part.Verify(); err != nil {
			return "", err
		}
	}
	if _, ok := file.(*wshard.JoinedFile); ok {
		manifest, err := wshard.LoadManifest(name)
		if err == nil {
			err = manifest.CheckContinuity(filepath.Dir(name))
		}
		if err != nil {
			return "", err
		}
	}
	return file.(interface{ Identity() (string, error) }).Identity()
}

func (c *command) recover(path, output string, isRemoved bool) error {
	found, err := wshard.Recover(path, wshard.RecoverOptions{Output: output, RemovePartial: isRemoved})
	if err != nil {
		return err
	}
	if c.json {
		return c.print(found)
	}
	fmt.Fprintf(c.out, "wrote %s: %d steps of %s\n", found.Path, found.Steps, found.EpisodeID)
	if !found.IsComplete {
		fmt.Fprintf(c.out, "the recording had not ended: at most %d steps were not flushed, %d bytes were not valid\n", found.UnflushedAtMost, found.LostBytes)
	}
	if found.Problem != "" {
		fmt.Fprintf(c.out, "the journal ends early: %s\n", found.Problem)
	}
	if _, err := os.Stat(path); err == nil && !isRemoved {
		fmt.Fprintf(c.out, "the journal stays at %s\n", path)
	}
	return nil
}
