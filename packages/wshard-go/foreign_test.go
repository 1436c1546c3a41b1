package wshard

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// If these tests fail, files of other libraries read differently, or a forged size costs memory.

// filesOf returns the files of a directory that an environment variable names, or of a default; it skips without any.
func filesOf(t testing.TB, variable, otherwise, pattern string) []string {
	t.Helper()
	directory := os.Getenv(variable)
	if directory == "" {
		directory = otherwise
	}
	found, _ := filepath.Glob(filepath.Join(directory, pattern))
	if len(found) == 0 {
		t.Skipf("there are no files in %s", directory)
	}
	return found
}

func goldenFiles(t testing.TB, pattern string) []string {
	return filesOf(t, "WSHARD_GOLDEN", "../../tests/golden/wshard", pattern)
}

func TestKnownHashes(t *testing.T) {
	if sum := checksum(0, []byte("123456789")); sum != 0xE3069283 {
		t.Errorf("CRC-32C is %x", sum)
	}
	if sum := xxhash.Sum64String("signal/obs"); sum != 0x86f8c8413116a0ae {
		t.Errorf("xxHash64 is %x", sum)
	}
}

func TestGoldenFilesHaveTheirIdentity(t *testing.T) {
	listed, err := os.ReadFile(goldenFiles(t, "identities.json")[0])
	if err != nil {
		t.Fatal(err)
	}
	var identities map[string]any
	if err := json.Unmarshal(listed, &identities); err != nil {
		t.Fatal(err)
	}
	for _, path := range goldenFiles(t, "*.wshard") {
		if found, err := Identity(path); err != nil || found != identities[filepath.Base(path)] {
			t.Errorf("%s: %s %v", path, found, err)
		}
		if IsManifest(path) {
			continue // its chunks are not here
		}
		file, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := file.Verify(); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		file.Close()
	}
	for _, path := range goldenFiles(t, "*.journal") {
		if e, err := Load(path); err != nil || e.Length == 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestReferenceFilesAreWrittenBackUnchanged(t *testing.T) {
	for _, path := range filesOf(t, "WSHARD_VECTORS", "../../../shared/vectors/wshard", "*.wshard") {
		e, err := Load(path)
		if err != nil {
			t.Fatal(path, err)
		}
		before, _ := Identity(path)
		after, err := Identity(save(t, e, SaveOptions{Compression: Compression{Zstd, 0}}))
		if err != nil || before != after {
			t.Errorf("%s: %s became %s: %v", path, before, after, err)
		}
	}
}

// spoil changes the index entry of a block of a saved file.
func spoil(t *testing.T, path, name string, change func(row []byte)) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	hash := binary.LittleEndian.AppendUint64(nil, xxhash.Sum64String(name))
	at := bytes.Index(data, hash)
	change(data[at : at+entryBytes])
	return data
}

func TestForgedSizesCostNoMemory(t *testing.T) {
	const mib = 1 << 20
	word := binary.LittleEndian
	for name, options := range someOptions {
		if name == "plain" || name == "per block" {
			continue
		}
		// Zeros compress to few blocks, which may not promise more than they hold.
		e := &Episode{ID: "a", Length: 1, Extra: []RawBlock{{Name: "x", Data: make([]byte, mib)}}}
		path := save(t, e, options)
		for _, size := range []uint64{2 * mib, 100 * mib, 1 << 30, 1 << 40, 1<<64 - 1} {
			data := spoil(t, path, "x", func(row []byte) { word.PutUint64(row[32:], size) })
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := LoadReaderAt(bytes.NewReader(data), int64(len(data)))
			runtime.ReadMemStats(&after)
			if !errors.Is(err, Corrupt) && !errors.Is(err, LimitExceeded) {
				t.Errorf("%s of %d: %v", name, size, err)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 4*mib {
				t.Errorf("%s of %d allocated %d bytes", name, size, grown)
			}
		}
	}
}

func TestMetadataMayPretendToHaveTimeChunks(t *testing.T) {
	path := save(t, fullEpisode(4), SaveOptions{})
	data := spoil(t, path, metaWShard, func(row []byte) { row[14] = entryCompressed | entryZstd | entryChunked })
	file, err := OpenReaderAt(bytes.NewReader(data), int64(len(data)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	reader, _ := file.Block(metaWShard)
	if _, err := reader.Type(); !errors.Is(err, Corrupt) { // must not wait for itself
		t.Error(err)
	}
}

func TestForgedSeekTableCostsOneChunk(t *testing.T) {
	e := &Episode{ID: "a", Length: 64, Observations: Channels{{Name: "x", Data: ramp(U8, 64, 1<<16)}}}
	path := save(t, e, SaveOptions{Compression: Compression{Zstd, 0}, TimeChunkSteps: 8})
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Every chunk promises 128 MiB, and the entry their sum.
	word := binary.LittleEndian
	table := data[len(data)-seekFooterBytes-8*seekRowBytes:]
	for chunk := 0; chunk < 8; chunk++ {
		word.PutUint32(table[chunk*seekRowBytes+4:], 1<<27)
	}
	at := bytes.Index(data, binary.LittleEndian.AppendUint64(nil, xxhash.Sum64String("signal/x")))
	word.PutUint64(data[at+32:], 8<<27)
	file, err := OpenReaderAt(bytes.NewReader(data), int64(len(data)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	block, _ := file.Block("signal/x")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = block.Raw()
	runtime.ReadMemStats(&after)
	if !errors.Is(err, Corrupt) || after.TotalAlloc-before.TotalAlloc > 130<<20 {
		t.Errorf("%d bytes: %v", after.TotalAlloc-before.TotalAlloc, err)
	}
}

func TestLZ4BlocksAreCheckedBeforeTheyAreDecoded(t *testing.T) {
	for name, c := range map[string]struct {
		stored string
		size   int
	}{
		"offset 0":           {"\x44abcd\x00\x00\xc0xxxxxxxxxxxx", 24},
		"before the start":   {"\x44abcd\x09\x00\xc0xxxxxxxxxxxx", 24},
		"literals beyond":    {"\xf0", 15},
		"endless length":     {"\xf0\xff\xff", 600},
		"match at the end":   {"\x40abcd\x01\x00", 8},
		"no literals at end": {"\x40abcd\x01\x00\x00", 8},
		"nothing":            {"", 1},
	} {
		if _, err := decompressLZ4([]byte(c.stored), c.size, "it"); !errors.Is(err, Corrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for size := 0; size < 300; size++ {
		for level := 0; level < 2; level++ {
			data := bytes.Repeat([]byte("abc"), size)[:size]
			packed, err := compressLZ4(data, level)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := decompressLZ4(packed, size, "it"); err != nil || !bytes.Equal(again, data) {
				t.Fatalf("%d bytes at level %d: %v", size, level, err)
			}
		}
	}
}

// saveVolatile does the same as Save, without waiting for the disk.
func saveVolatile(e *Episode, path string) error {
	err := e.check()
	if err != nil {
		return err
	}
	plans, err := planBlocks(e)
	if err == nil {
		err = checkSizes(plans, e)
	}
	if err == nil {
		_, err = writeContainer(path, plans, containerOptions{role: roleEpisode, alignment: defaultAlignment, isVolatile: true})
	}
	return err
}

// FuzzReader looks for a file that crashes the reader, or that loads but cannot be saved and loaded again.
func FuzzReader(f *testing.F) {
	for _, path := range goldenFiles(f, "*") {
		if data, err := os.ReadFile(path); err == nil {
			f.Add(data)
		}
	}
	directory := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.HasPrefix(data, []byte(journalMagic)) {
			path := filepath.Join(directory, "a.wshard.partial")
			os.WriteFile(path, data, 0o666)
			Load(path)
			target := filepath.Join(directory, "a.wshard")
			os.Remove(target)
			file, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			j, err := readJournal(file)
			if err != nil || j.assemble(file, target, nil, true) != nil {
				return
			}
			if e, err := Load(target); err != nil || e.Length != j.steps {
				t.Fatalf("a recovered file cannot be read: %v", err)
			}
			return
		}
		file, err := OpenReaderAt(bytes.NewReader(data), int64(len(data)), Options{})
		if err != nil {
			return
		}
		for _, name := range file.Blocks() {
			reader, _ := file.Block(name)
			if found, err := reader.Type(); err == nil {
				reader.Window(found.Rows/3, found.Rows/2)
			}
			file.FrameIndex(name)
		}
		file.Identity()
		e, err := LoadReaderAt(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		path := filepath.Join(directory, "b.wshard")
		if err := saveVolatile(e, path); err != nil {
			t.Fatalf("a loaded episode cannot be saved: %v", err)
		}
		again, err := Load(path)
		if err != nil {
			t.Fatalf("a saved episode cannot be loaded: %v", err)
		}
		sameEpisode(t, e, again)
	})
}
