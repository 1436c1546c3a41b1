package main

import (
	"fmt"
	"os"
	"strconv"

	"wshard"
)

// The channels of tests/formats/wshard/recorder_process.py, so that the same check applies to both writers.
var dtypes = []wshard.DType{wshard.F32, wshard.F64, wshard.U8, wshard.I16, wshard.I64, wshard.Bool, wshard.U32, wshard.F16}

func valueOf(channel, step int) any {
	count := channel + 1
	at := func(i int) int { return (i + step*7 + channel) % 120 }
	switch dtypes[channel] {
	case wshard.F32:
		return fill[float32](count, at)
	case wshard.F64:
		return fill[float64](count, at)
	case wshard.U8:
		return fill[uint8](count, at)
	case wshard.I16:
		return fill[int16](count, at)
	case wshard.I64:
		return fill[int64](count, at)
	case wshard.U32:
		return fill[uint32](count, at)
	case wshard.Bool:
		out := make([]bool, count)
		for i := range out {
			out[i] = at(i) != 0
		}
		return out
	}
	out := make([]uint16, count)
	for i := range out {
		out[i] = halfOf(at(i))
	}
	return out
}

func fill[T float32 | float64 | uint8 | int16 | int64 | uint32](count int, at func(int) int) []T {
	out := make([]T, count)
	for i := range out {
		out[i] = T(at(i))
	}
	return out
}

// halfOf returns the bits of a small integer as a half-precision number.
func halfOf(value int) uint16 {
	if value == 0 {
		return 0
	}
	exponent := 0
	for value>>(exponent+1) > 0 {
		exponent++
	}
	return uint16(exponent+15)<<10 | uint16(value<<(10-exponent))&1023
}

// record takes the arguments of recorder_process.py: path, flush_steps, fsync, count.
func record(arguments []string) error {
	flushSteps, _ := strconv.Atoi(arguments[1])
	count, _ := strconv.Atoi(arguments[3])
	fsync := map[string]wshard.Fsync{"flush": wshard.FsyncFlush, "end": wshard.FsyncEnd, "never": wshard.FsyncNever}[arguments[2]]
	var channels []wshard.StreamChannel
	for number, dtype := range dtypes {
		channel := wshard.StreamChannel{ID: fmt.Sprintf("c%d", number), DType: dtype, Shape: []int{number + 1}}
		if number%2 == 1 {
			channel.Compression.Codec = wshard.Zstd
		}
		channels = append(channels, channel)
	}
	fmt.Println("ready")
	w, err := wshard.NewStreamWriter(arguments[0], "ep", channels, wshard.StreamOptions{FlushSteps: flushSteps, Fsync: fsync})
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.Begin(wshard.Begin{EnvID: "Killed-v0", Timebase: wshard.Timebase{TickHz: 30}}); err != nil {
		return err
	}
	printed := 0
	for step := 0; step < count; step++ {
		values := map[string]any{}
		for number := range dtypes {
			values[fmt.Sprintf("c%d", number)] = valueOf(number, step)
		}
		if err := w.Write(wshard.Step{Values: values, Reward: float32(step % 1000)}); err != nil {
			return err
		}
		if w.FlushedSteps() != printed {
			printed = w.FlushedSteps()
			os.Stdout.WriteString(strconv.Itoa(printed) + "\n")
		}
	}
	return w.End()
}

// claim tries to record over a journal, and returns nothing if it could.
func claim(path string) (any, error) {
	w, err := wshard.NewStreamWriter(path, "other", nil, wshard.StreamOptions{})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	return nil, w.Begin(wshard.Begin{})
}

// chunks cuts an episode at the given steps and writes the pieces as chunks.
func chunks(asked question) (any, error) {
	e, err := wshard.Load(asked.Path)
	if err != nil {
		return nil, err
	}
	w, err := wshard.NewChunkedWriter(asked.To, e.ID, wshard.ChunkedOptions{Resume: asked.Resume, Save: asked.Options.translated()})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	for i := 1; i < len(asked.Cuts); i++ {
		if _, err := w.Write(cut(e, asked.Cuts[i-1], asked.Cuts[i])); err != nil {
			return nil, err
		}
	}
	return w.Finish()
}

func cut(e *wshard.Episode, start, stop int) *wshard.Episode {
	out := *e.WithoutOrigin()
	out.Length = stop - start
	slice := func(array *wshard.Array) *wshard.Array {
		if array == nil {
			return nil
		}
		width := len(array.Data) / array.Len()
		shape := append([]int{stop - start}, array.StepShape()...)
		return &wshard.Array{DType: array.DType, Shape: shape, Data: array.Data[start*width : stop*width]}
	}
	group := func(channels wshard.Channels) wshard.Channels {
		var out wshard.Channels
		for _, channel := range channels {
			one := *channel
			one.Data = slice(channel.Data)
			out = append(out, &one)
		}
		return out
	}
	out.Observations, out.Actions = group(e.Observations), group(e.Actions)
	out.Omens, out.Uncertainties = group(e.Omens), group(e.Uncertainties)
	out.Rewards, out.Terminations = slice(e.Rewards), slice(e.Terminations)
	out.Truncations, out.TimestampsNS = slice(e.Truncations), slice(e.TimestampsNS)
	return &out
}

// bench measures windows of a block, or appended steps, in seconds of the processor for each.
func bench(asked question) (any, error) {
	if asked.Block == "" {
		return benchAppend(asked.Path, asked.Rows[0], asked.Rows[1])
	}
	file, err := wshard.OpenEpisode(asked.Path, wshard.Options{})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reader, err := file.Rows(asked.Block)
	if err != nil {
		return nil, err
	}
	found, err := reader.Type()
	if err != nil {
		return nil, err
	}
	count, width := asked.Rows[0], asked.Rows[1]
	started := processorSeconds()
	for i := 0; i < count; i++ {
		start := i * 7919 % (found.Rows - width)
		if _, err := reader.Window(start, start+width); err != nil {
			return nil, err
		}
	}
	return (processorSeconds() - started) / float64(count), nil
}

func benchAppend(path string, count, width int) (any, error) {
	channels := []wshard.StreamChannel{
		{ID: "state", DType: wshard.F32, Shape: []int{width}},
		{ID: "ctrl", DType: wshard.F32, Shape: []int{7}, Block: "action/ctrl"},
	}
	w, err := wshard.NewStreamWriter(path, "ep", channels, wshard.StreamOptions{Fsync: wshard.FsyncNever})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if err := w.Begin(wshard.Begin{Timebase: wshard.Timebase{TickHz: 30}}); err != nil {
		return nil, err
	}
	values := map[string]any{"state": make([]float32, width), "ctrl": make([]float32, 7)}
	started := processorSeconds()
	for i := 0; i < count; i++ {
		if err := w.Write(wshard.Step{Values: values, Reward: 1}); err != nil {
			return nil, err
		}
	}
	spent := (processorSeconds() - started) / float64(count)
	return spent, w.Close()
}
