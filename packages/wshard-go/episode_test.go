package wshard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
)

// If these tests fail, saving and loading changes an episode: values, types or metadata are lost.

var allTypes = []DType{F32, F64, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, Bool}

// ramp returns distinct bytes, or 0 and 1 for booleans.
func ramp(dtype DType, shape ...int) *Array {
	size, _ := sizeOf(shape, dtype)
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * 7)
		if dtype == Bool {
			data[i] = byte(i % 2)
		}
	}
	return &Array{dtype, shape, data}
}

// fullEpisode has a value in every field, and every element type.
func fullEpisode(length int) *Episode {
	e := &Episode{
		ID: "full", Length: length, EnvID: "Everything-v1", Timebase: Timebase{Type: TimestampsNS},
		Actions:      Channels{{Name: "ctrl", Data: ramp(F32, length, 2)}},
		Rewards:      ramp(F32, length),
		Terminations: ramp(Bool, length),
		Truncations:  ramp(Bool, length),
		TimestampsNS: ramp(I64, length),
		Metadata:     map[string]any{"operator": "Ada", "notes": []any{"é", 1.5, nil}, "ok": true, "n": 30},
		Attributes:   map[string]any{"source": "bench"},
		Extra:        []RawBlock{{"vendor/blob", []byte{1, 2, 3}, 0x8001, 7}, {"aux/empty", []byte{}, 3, 0}},
	}
	for _, dtype := range allTypes {
		e.Observations = append(e.Observations, &Channel{Name: string(dtype) + "_ch", Data: ramp(dtype, length, 2)})
	}
	state := NewArray(make([]float32, length*3), 3)
	values, _ := Values[float32](state)
	for i := range values {
		values[i] = float32(math.Sin(float64(i)))
	}
	packed, _ := PackResidual(state)
	e.Observations = append(e.Observations,
		&Channel{Name: "state", Data: state},
		&Channel{Name: "imu", Data: ramp(F32, length*4, 6), Attributes: map[string]any{"sampling_rate_hz": 400}})
	e.Omens = Channels{{Name: "state/dreamer", Data: ramp(F32, length, 3)}, {Name: "state/team/model", Data: ramp(F64, length, 5)},
		{Name: "latent_action/genie", Data: ramp(F32, length, 8)}, {Name: "latent_action_codebook/genie", Data: ramp(I32, length)}}
	e.Uncertainties = Channels{{Name: "state/dreamer/std", Data: ramp(F32, length, 3)}}
	e.Residuals = Channels{{Name: "state/sign2nddiff", Data: NewArray(packed), Undeclared: true}}
	return e
}

var someOptions = map[string]SaveOptions{
	"plain":       {},
	"zstd":        {Compression: Compression{Zstd, 0}, Alignment: 32},
	"lz4":         {Compression: Compression{LZ4, 0}, Alignment: 16},
	"lz4 slow":    {Compression: Compression{LZ4, 9}, Alignment: Unaligned},
	"time chunks": {Compression: Compression{Zstd, 19}, TimeChunkSteps: 7},
	"per block":   {PerBlock: map[string]Compression{"signal/state": {LZ4, 0}, "meta/episode": {Zstd, 3}}, Seal: SealAlways},
}

func sameEpisode(t *testing.T, left, right *Episode) {
	t.Helper()
	if left.ID != right.ID || left.Length != right.Length || left.EnvID != right.EnvID || left.Timebase.Hz() != right.Timebase.Hz() {
		t.Fatalf("%+v differs from %+v", left, right)
	}
	for _, members := range [][2]map[string]any{{left.Metadata, right.Metadata}, {left.Attributes, right.Attributes}} {
		if isSame, err := sameJSON(members[0], members[1]); err != nil || !isSame {
			t.Fatalf("%v differs from %v", members[0], members[1])
		}
	}
	ours, theirs := left.lanes(), right.lanes()
	if len(ours) != len(theirs) {
		t.Fatalf("%d channels, %d channels", len(ours), len(theirs))
	}
	for i := range ours {
		if ours[i].block != theirs[i].block || !reflect.DeepEqual(ours[i].channel.Data, theirs[i].channel.Data) {
			t.Fatalf("%s differs from %s", ours[i].block, theirs[i].block)
		}
	}
	for _, name := range seriesNames {
		if !reflect.DeepEqual(*left.series(name), *right.series(name)) {
			t.Fatalf("%s differs", name)
		}
	}
	if !reflect.DeepEqual(left.Extra, right.Extra) {
		t.Fatal("the extra blocks differ")
	}
}

func save(t *testing.T, e *Episode, options SaveOptions) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.wshard")
	if _, err := Save(e, path, options); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFullEpisodeRoundTrips(t *testing.T) {
	identities := map[string]bool{}
	for name, options := range someOptions {
		path := save(t, fullEpisode(40), options)
		loaded, err := Load(path)
		if err != nil {
			t.Fatal(name, err)
		}
		sameEpisode(t, fullEpisode(40), loaded)
		again := save(t, loaded, options)
		one, _ := os.ReadFile(path)
		two, _ := os.ReadFile(again)
		if !bytes.Equal(one, two) {
			t.Error(name, "a rewrite without changes gives other bytes")
		}
		found, err := Identity(path)
		if err != nil {
			t.Fatal(name, err)
		}
		identities[found] = true
	}
	if len(identities) != 1 {
		t.Errorf("the identity depends on the options: %v", identities)
	}
}

func TestWindowsEqualSlicesOfTheWholeBlock(t *testing.T) {
	for name, options := range someOptions {
		path := save(t, fullEpisode(100), options)
		for _, reading := range []Options{{}, {NoMap: true}, {CacheBytes: -1}, {CacheBytes: 64}} {
			file, err := Open(path, reading)
			if err != nil {
				t.Fatal(err)
			}
			for _, block := range file.Blocks() {
				reader, _ := file.Block(block)
				whole, err := reader.Read()
				if err != nil {
					t.Fatal(name, block, err)
				}
				step := 0
				if whole.Len() > 0 {
					step = len(whole.Data) / whole.Len()
				}
				for round := 0; round < 4; round++ { // the later rounds read a cached block
					for start := 0; start <= whole.Len(); start += 1 + whole.Len()/9 {
						stop := min(start+13, whole.Len())
						window, err := reader.Window(start, stop)
						if err != nil || !bytes.Equal(window.Data, whole.Data[start*step:stop*step]) || window.Len() != stop-start {
							t.Fatalf("%s %s %d:%d differs: %v", name, block, start, stop, err)
						}
					}
				}
				if _, err := reader.Window(1, whole.Len()+1); !errors.Is(err, BadInput) {
					t.Errorf("%s: %v", block, err)
				}
			}
			file.Close()
			if _, err := file.Block("reward"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if cachedBytes != 0 {
		t.Errorf("closed files keep %d bytes in the cache", cachedBytes)
	}
}

func TestGoroutinesShareAFile(t *testing.T) {
	for name, options := range someOptions {
		file, err := Open(save(t, fullEpisode(100), options), Options{CacheBytes: 2000})
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		for worker := 0; worker < 4; worker++ {
			running.Add(1)
			go func(worker int) {
				defer running.Done()
				for i := 0; i < 100; i++ {
					reader, err := file.Block([]string{"signal/state", "signal/imu", "reward"}[i%3])
					if err == nil {
						_, err = reader.Window(i%50, i%50+worker)
					}
					if err != nil {
						t.Error(name, err)
					}
				}
			}(worker)
		}
		running.Wait()
		file.Close()
	}
}

func TestSealDetectsOtherContent(t *testing.T) {
	e := fullEpisode(4)
	e.Provenance = map[string]any{}
	for _, name := range provenanceMembers {
		e.Provenance[name] = nil
	}
	path := save(t, e, SaveOptions{Seal: SealAlways})
	file, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	names := file.Blocks()
	if last := names[len(names)-2:]; last[0] != metaProvenance || last[1] != metaIdentity {
		t.Errorf("the file ends with %v", last)
	}
	loaded, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := Identity(path)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "b.wshard")
	if again, err := Save(loaded, other, SaveOptions{Compression: Compression{Zstd, 0}}); err != nil || again != sealed {
		t.Errorf("a sealed episode is saved as %q: %v", again, err)
	}
	reader, _ := file.Block("reward")
	entry := reader.Entry()
	forged := spoil(t, path, "reward", func(row []byte) { binary.LittleEndian.PutUint32(row[40:], checksum(0, make([]byte, entry.Size))) })
	copy(forged[entry.Offset:], make([]byte, entry.Size))
	another, err := OpenReaderAt(bytes.NewReader(forged), int64(len(forged)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := another.Verify(); err != nil {
		t.Errorf("all checksums are right: %v", err)
	}
	if _, err := another.Identity(); !errors.Is(err, Corrupt) {
		t.Errorf("other content under the seal: %v", err)
	}
	e.Provenance = map[string]any{"v": 1}
	if _, err := Save(e, other, SaveOptions{}); !errors.Is(err, BadInput) {
		t.Errorf("an incomplete provenance: %v", err)
	}
}

func TestWhatNoReaderAcceptsIsRefusedBeforeWriting(t *testing.T) {
	spoilers := map[string]func(*Episode){
		"another length":       func(e *Episode) { e.Length = 5 },
		"a type of the series": func(e *Episode) { e.Rewards = ramp(F64, 4) },
		"a scalar":             func(e *Episode) { e.Actions[0].Data.Shape = nil },
		"missing bytes":        func(e *Episode) { e.Actions[0].Data.Data = nil },
		"a known member":       func(e *Episode) { e.Attributes["env_id"] = "x" },
		"NaN":                  func(e *Episode) { e.Metadata["x"] = math.NaN() },
		"a function":           func(e *Episode) { e.Metadata["x"] = func() {} },
		"not UTF-8":            func(e *Episode) { e.ID = "\xff" },
		"a negative rate":      func(e *Episode) { e.Timebase = Timebase{TickHz: -1} },
		"a rate without steps": func(e *Episode) { e.Timebase = Timebase{TickHz: 1e-300} },
		"no timestamps":        func(e *Episode) { e.TimestampsNS = nil },
		"a block twice":        func(e *Episode) { e.Extra = append(e.Extra, RawBlock{Name: "reward"}) },
		"a channel twice":      func(e *Episode) { e.Actions = append(e.Actions, e.Actions[0]) },
		"ticks of another length": func(e *Episode) {
			e.Extra = append(e.Extra, RawBlock{Name: "time/ticks", Data: make([]byte, 3)})
		},
	}
	directory := t.TempDir()
	for name, spoil := range spoilers {
		e := fullEpisode(4)
		spoil(e)
		if _, err := Save(e, filepath.Join(directory, "a.wshard"), SaveOptions{}); !errors.Is(err, BadInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, options := range []SaveOptions{{Alignment: 8}, {Compression: Compression{Zstd, 99}}, {PerBlock: map[string]Compression{"x": {}}}, {TimeChunkSteps: -1}} {
		if _, err := Save(fullEpisode(4), filepath.Join(directory, "a.wshard"), options); !errors.Is(err, BadInput) {
			t.Errorf("%+v: %v", options, err)
		}
	}
	if left, _ := os.ReadDir(directory); len(left) > 0 {
		t.Errorf("refused episodes left %v", left)
	}
}

func TestResidualsAreSignsOfTheSecondDifference(t *testing.T) {
	packed, err := PackResidual(NewArray([]float64{0, 0, 5, 0, 1, 2, 3, 0, 0, 0, 0, 9, 0, 1, 0, 0, 0, 0}, 2))
	if err != nil {
		t.Fatal(err)
	}
	bits, err := UnpackResidual(packed, 9)
	want := [][]bool{
		{false, true, false, true, false, false, false, false, false},
		{false, false, true, false, false, true, false, false, false},
	}
	if err != nil || !reflect.DeepEqual(bits, want) {
		t.Errorf("%v %v", bits, err)
	}
	if _, err := UnpackResidual(packed, 80); !errors.Is(err, Corrupt) {
		t.Errorf("too few bytes: %v", err)
	}
}

func TestValuesOfEveryType(t *testing.T) {
	halves := NewArray([]uint16{0x3C00, 0xC000, 0x7C00, 0x0001})
	for _, c := range []struct {
		array *Array
		want  []float64
	}{
		{halves.As(F16), []float64{1, -2, math.Inf(1), math.Ldexp(1, -24)}},
		{NewArray([]uint16{0x3F80, 0xC000}).As(BF16), []float64{1, -2}},
		{NewArray([]bool{true, false}), []float64{1, 0}},
		{NewArray([]int8{-1, 5}), []float64{-1, 5}},
		{NewArray([]uint64{1 << 53}), []float64{1 << 53}},
	} {
		if found, err := c.array.Float64s(); err != nil || !reflect.DeepEqual(found, c.want) {
			t.Errorf("%s: %v %v", c.array.DType, found, err)
		}
	}
	if _, err := Values[float32](halves); !errors.Is(err, BadInput) {
		t.Errorf("u16 as f32: %v", err)
	}
	unaligned := &Array{I32, []int{1}, []byte{0, 1, 0, 0, 0}[1:]}
	if found, err := Values[int32](unaligned); err != nil || found[0] != 1 {
		t.Errorf("unaligned: %v %v", found, err)
	}
}
