package wshard

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// If these tests fail, a recording loses steps that were flushed, adds half a step, or overwrites another one.

func recorder(t *testing.T, path string, options StreamOptions) *StreamWriter {
	t.Helper()
	channels := []StreamChannel{
		{ID: "q", DType: F32, Shape: []int{2}, Compression: Compression{Zstd, 0}},
		{ID: "n", DType: I64, Block: "action/n", Attributes: map[string]any{"unit": 1.0}},
		{ID: "h", DType: BF16, Shape: []int{2, 1}, Block: "omen/h/model"},
	}
	w, err := NewStreamWriter(path, "ep", channels, options)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func step(i int) Step {
	return Step{Values: map[string]any{"q": []float32{float32(i), 1}, "n": i, "h": []uint16{uint16(i), 2}}, Reward: float32(i)}
}

func begin(t *testing.T, w *StreamWriter, count int) {
	t.Helper()
	if err := w.Begin(Begin{EnvID: "E", Timebase: Timebase{TickHz: 30}, Metadata: map[string]any{"a": 1}}); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < count; i++ {
		if err := w.Write(step(i)); err != nil {
			t.Fatal(err)
		}
	}
}

func checkSteps(t *testing.T, path string, count int) *Episode {
	t.Helper()
	e, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := Values[int64](e.Actions.Get("n").Data)
	if err != nil || len(numbers) != count || e.Length != count {
		t.Fatalf("%d steps instead of %d: %v", len(numbers), count, err)
	}
	for i, number := range numbers {
		if number != int64(i) {
			t.Fatalf("step %d has %d", i, number)
		}
	}
	return e
}

func TestRecordingEndsInAFile(t *testing.T) {
	for _, options := range []StreamOptions{{}, {FlushSteps: 1}, {FlushSteps: 7, Fsync: FsyncNever, Seal: true}, {Fsync: FsyncEnd, Alignment: Unaligned, TimeChunkSteps: 10}} {
		path := filepath.Join(t.TempDir(), "a.wshard")
		w := recorder(t, path, options)
		begin(t, w, 50)
		checkSteps(t, w.PartialPath(), w.FlushedSteps())
		if err := w.End(); err != nil {
			t.Fatal(err)
		}
		e := checkSteps(t, path, 50)
		if len(e.Attributes) != 0 || e.Timebase.TickHz != 30 || e.Omens.Get("h/model").Data.DType != BF16 {
			t.Errorf("%+v", e)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
			t.Errorf("the recording left %v", left)
		}
	}
}

func TestStepThatDoesNotFitAddsNothing(t *testing.T) {
	w := recorder(t, filepath.Join(t.TempDir(), "a.wshard"), StreamOptions{FlushSteps: 4})
	begin(t, w, 5)
	for name, value := range map[string]any{"q": []float64{1, 2}, "n": 1.5, "h": []uint16{1}, "x": 1} {
		bad := step(5)
		bad.Values[name] = value
		if err := w.Write(bad); !errors.Is(err, SchemaMismatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
	missing := step(5)
	delete(missing.Values, "q")
	if err := w.Write(missing); !errors.Is(err, SchemaMismatch) {
		t.Error(err)
	}
	late := step(5)
	late.TimestampNS = 3
	if err := w.Write(late); !errors.Is(err, SchemaMismatch) {
		t.Error(err)
	}
	if err := w.Write(step(5)); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	checkSteps(t, w.PartialPath(), 6)
}

func TestRecoveryHasEveryFlushedStep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.wshard")
	w := recorder(t, path, StreamOptions{FlushSteps: 4, Fsync: FsyncNever})
	begin(t, w, 11)
	if _, err := Recover(w.PartialPath(), RecoverOptions{}); !errors.Is(err, Conflict) {
		t.Errorf("a running recording: %v", err)
	}
	other := recorder(t, path, StreamOptions{})
	if err := other.Begin(Begin{}); !errors.Is(err, Conflict) {
		t.Errorf("a second writer: %v", err)
	}
	w.release() // as if the process had died: three steps are only in memory
	if err := other.Begin(Begin{}); !errors.Is(err, AlreadyExists) {
		t.Errorf("a journal with steps: %v", err)
	}
	whole, err := os.ReadFile(w.PartialPath())
	if err != nil {
		t.Fatal(err)
	}
	for length := len(whole); length > 0; length -= 29 {
		journal := filepath.Join(t.TempDir(), "b.wshard.partial")
		if err := os.WriteFile(journal, whole[:length], 0o666); err != nil {
			t.Fatal(err)
		}
		found, err := Recover(journal, RecoverOptions{RemovePartial: true})
		if err != nil {
			if !errors.Is(err, Corrupt) {
				t.Fatal(err)
			}
			fresh := recorder(t, filepath.Join(filepath.Dir(journal), "b.wshard"), StreamOptions{})
			begin(t, fresh, 1) // the journal never held a step, so a new writer takes it over
			fresh.Close()
			continue
		}
		e := checkSteps(t, found.Path, found.Steps)
		if found.IsComplete || found.Steps%4 != 0 || !has(e.Attributes, "recovered") || found.UnflushedAtMost != 4 {
			t.Fatalf("%+v", found)
		}
		if length == len(whole) && found.Steps != 8 {
			t.Errorf("%d steps of 8 were recovered", found.Steps)
		}
	}
}

func TestDamagedRecordKeepsTheJournal(t *testing.T) {
	w := recorder(t, filepath.Join(t.TempDir(), "a.wshard"), StreamOptions{FlushSteps: 4, Fsync: FsyncNever})
	begin(t, w, 12)
	w.Close()
	data, _ := os.ReadFile(w.PartialPath())
	last := bytes.LastIndex(data, []byte(journalMagic))
	data[last-10] ^= 1 // in the record before
	os.WriteFile(w.PartialPath(), data, 0o666)
	found, err := Recover(w.PartialPath(), RecoverOptions{RemovePartial: true})
	if err != nil || found.LostBytes == 0 || found.Problem == "" {
		t.Fatalf("%+v %v", found, err)
	}
	if _, err := os.Stat(w.PartialPath()); err != nil {
		t.Error("records behind the damage are gone")
	}
}

func TestRecordingNeverReplacesAFile(t *testing.T) {
	path := save(t, fullEpisode(4), SaveOptions{})
	before, _ := os.ReadFile(path)
	w := recorder(t, path, StreamOptions{})
	if err := w.Begin(Begin{}); !errors.Is(err, AlreadyExists) {
		t.Error(err)
	}
	os.Remove(path)
	begin(t, w, 3)
	os.WriteFile(path, before, 0o666)
	if err := w.End(); !errors.Is(err, AlreadyExists) {
		t.Error(err)
	}
	os.Remove(path)
	if err := w.End(); err != nil {
		t.Error("the end cannot be tried again:", err)
	}
	checkSteps(t, path, 3)
}

func TestRefusedRecordings(t *testing.T) {
	directory := t.TempDir()
	for name, channel := range map[string]StreamChannel{
		"no id":           {DType: F32},
		"unknown type":    {ID: "a", DType: "f31"},
		"a residual":      {ID: "a", DType: U8, Block: "residual/a/sign2nddiff"},
		"metadata":        {ID: "a", DType: U8, Block: "meta/episode"},
		"a level":         {ID: "a", DType: U8, Compression: Compression{LZ4, 99}},
		"a negative size": {ID: "a", DType: U8, Shape: []int{-1}},
	} {
		w, err := NewStreamWriter(filepath.Join(directory, "a.wshard"), "ep", []StreamChannel{channel}, StreamOptions{})
		if err == nil {
			err = w.Begin(Begin{})
		}
		if !errors.Is(err, BadInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
	huge := StreamChannel{ID: "a", DType: U8, Shape: []int{1 << 30, 1 << 10}}
	w, err := NewStreamWriter(filepath.Join(directory, "a.wshard"), "ep", []StreamChannel{huge}, StreamOptions{})
	if err == nil {
		err = w.Begin(Begin{})
	}
	if !errors.Is(err, LimitExceeded) {
		t.Error(err)
	}
	if left, _ := os.ReadDir(directory); len(left) > 0 {
		t.Errorf("refused recordings left %v", left)
	}
}

func TestChunksAreOneEpisode(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "new")
	options := ChunkedOptions{MaxSteps: 10, Save: SaveOptions{Compression: Compression{Zstd, 0}}}
	w, err := NewChunkedWriter(directory, "long", options)
	if err != nil {
		t.Fatal(err)
	}
	whole := ramp(F32, 25, 2)
	chunk := func(first, last int) *Episode {
		data := &Array{F32, []int{last - first, 2}, whole.Data[first*8 : last*8]}
		return &Episode{ID: "long", Length: last - first, EnvID: "E", Observations: Channels{{Name: "x", Data: data}}, Metadata: map[string]any{"last": last}}
	}
	for _, cut := range [][2]int{{0, 10}, {10, 20}, {20, 25}} {
		if _, err := w.Write(chunk(cut[0], cut[1])); err != nil {
			t.Fatal(err)
		}
	}
	other := chunk(0, 5)
	other.EnvID = "F"
	if _, err := w.Write(other); !errors.Is(err, BadInput) {
		t.Error(err)
	}
	second, err := NewChunkedWriter(directory, "long", ChunkedOptions{Resume: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Write(chunk(0, 5)); !errors.Is(err, Conflict) {
		t.Errorf("a second writer: %v", err)
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	joined, err := OpenJoined(w.ManifestPath(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer joined.Close()
	reader, err := joined.Rows("signal/x")
	if err != nil {
		t.Fatal(err)
	}
	for start := 0; start <= 25; start++ {
		for stop := start; stop <= 25; stop++ {
			window, err := reader.Window(start, stop)
			if err != nil || window.Len() != stop-start || !bytes.Equal(window.Data, whole.Data[start*8:stop*8]) {
				t.Fatalf("%d:%d %v", start, stop, err)
			}
		}
	}
	e, err := Load(w.ManifestPath())
	if err != nil || !bytes.Equal(e.Observations.Get("x").Data.Data, whole.Data) || e.Metadata["last"] != int64(25) {
		t.Errorf("%+v %v", e, err)
	}
	if _, err := NewChunkedWriter(directory, "long", options); !errors.Is(err, AlreadyExists) {
		t.Error(err)
	}
	os.Remove(filepath.Join(directory, "long_chunk_0001.wshard"))
	if _, err := OpenJoined(w.ManifestPath(), Options{}); !errors.Is(err, Corrupt) {
		t.Error(err)
	}
}
