package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"wshard"
)

// If these tests fail, the command prints something else than the file holds, or hides damage.

func call(t *testing.T, want int, arguments ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if status := run(arguments, &out, &errs); status != want {
		t.Fatalf("%v ended with %d: %s%s", arguments, status, out.String(), errs.String())
	}
	return out.String()
}

func TestCommands(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.wshard")
	e := &wshard.Episode{
		ID: "ep", Length: 3, EnvID: "E", Timebase: wshard.Timebase{TickHz: 30},
		Observations: wshard.Channels{{Name: "x", Data: wshard.NewArray([]float32{0.1, 1, 2, 3, 4, 5}, 2)}},
		Actions:      wshard.Channels{{Name: "n", Data: wshard.NewArray([]int64{1 << 60, -1, 0})}},
		Terminations: wshard.NewArray([]bool{false, false, true}),
	}
	if _, err := wshard.Save(e, path, wshard.SaveOptions{Seal: wshard.SealAlways}); err != nil {
		t.Fatal(err)
	}
	if text := call(t, 0, "info", path); !strings.Contains(text, "30 Hz") || !strings.Contains(text, "signal/x") {
		t.Error(text)
	}
	var report infoReport
	if err := json.Unmarshal([]byte(call(t, 0, "info", "--json", path)), &report); err != nil || report.Length != 3 || !report.IsSealed {
		t.Errorf("%+v %v", report, err)
	}
	if text := call(t, 0, "cat", path, "signal/x", "--rows", "0:2"); text != "0.1 1\n2 3\n" {
		t.Errorf("%q", text)
	}
	if text := call(t, 0, "cat", "--json", path, "action/n"); text != `{"dtype":"i64","shape":[3],"rows":[[1152921504606846976],[-1],[0]]}`+"\n" {
		t.Errorf("%q", text)
	}
	if text := call(t, 0, "cat", path, "done", "--rows", "2:"); text != "true\n" {
		t.Errorf("%q", text)
	}
	if text := call(t, 0, "cat", path, "done", "--raw"); text != "\x00\x00\x01" {
		t.Errorf("%q", text)
	}
	if text := call(t, 0, "cat", path, "meta/episode"); !json.Valid([]byte(text)) {
		t.Errorf("%q", text)
	}
	if text := call(t, 0, "verify", path); !strings.HasPrefix(text, "ok ") {
		t.Errorf("%q", text)
	}
	call(t, 1, "cat", path, "signal/y")
	call(t, 1, "cat", path, "done", "--rows", "2:9")
	call(t, 1, "cat", path, "done", "--rows", "x")
	call(t, 2, "cat", path)
	call(t, 2, "info", path, "--nope")
	call(t, 2, "paint", path)
	call(t, 0, "--help")
	data, _ := os.ReadFile(path)
	data[len(data)-1] ^= 1
	os.WriteFile(path, data, 0o666)
	var verdicts []verdict
	if err := json.Unmarshal([]byte(call(t, 1, "verify", "--json", path)), &verdicts); err != nil || verdicts[0].Error != "corrupt" {
		t.Errorf("%+v %v", verdicts, err)
	}
	call(t, 1, "info", filepath.Join(t.TempDir(), "none.wshard"))
}

func TestRecoverAndVerifyChunks(t *testing.T) {
	directory := t.TempDir()
	w, err := wshard.NewStreamWriter(filepath.Join(directory, "a.wshard"), "ep", []wshard.StreamChannel{{ID: "x", DType: wshard.U8}}, wshard.StreamOptions{})
	if err == nil {
		err = w.Begin(wshard.Begin{})
	}
	if err == nil {
		err = w.Write(wshard.Step{Values: map[string]any{"x": 7}})
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if text := call(t, 0, "info", w.PartialPath()); !strings.Contains(text, "flushed so far") || !strings.Contains(text, "signal/x") {
		t.Error(text)
	}
	if text := call(t, 0, "recover", w.PartialPath()); !strings.Contains(text, "1 steps of ep") || !strings.Contains(text, "had not ended") {
		t.Error(text)
	}
	if text := call(t, 0, "recover", "--json", w.PartialPath(), "--remove-partial"); !strings.Contains(text, `"step_count": 1`) {
		t.Error(text)
	}
	call(t, 1, "recover", w.PartialPath())
	chunks, err := wshard.NewChunkedWriter(directory, "long", wshard.ChunkedOptions{})
	for i := 0; i < 2 && err == nil; i++ {
		_, err = chunks.Write(&wshard.Episode{ID: "long", Length: 1, Rewards: wshard.NewArray([]float32{1})})
	}
	if err == nil {
		_, err = chunks.Finish()
	}
	if err != nil {
		t.Fatal(err)
	}
	if text := call(t, 0, "info", chunks.ManifestPath()); !strings.Contains(text, "chunks    2") {
		t.Error(text)
	}
	call(t, 0, "verify", chunks.ManifestPath())
	os.Remove(filepath.Join(directory, "long_chunk_0001.wshard"))
	call(t, 1, "verify", chunks.ManifestPath())
}
