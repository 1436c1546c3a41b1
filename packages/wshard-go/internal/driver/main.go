// The driver answers one JSON line for each line of input, so that the tests of the Python library can compare both
// libraries without starting a process for each file. With arguments, it records an episode until it is killed.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"wshard"
)

type question struct {
	Ask      string      `json:"ask"`
	Path     string      `json:"path"`
	To       string      `json:"to"`
	Block    string      `json:"block"`
	Rows     [2]int      `json:"rows"`
	Fresh    bool        `json:"fresh"`
	Options  saveOptions `json:"options"`
	Channels []string    `json:"channels"`
	Remove   bool        `json:"remove"`
	Cuts     []int       `json:"cuts"`
	Resume   bool        `json:"resume"`
}

func main() {
	if len(os.Args) > 1 {
		if err := record(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		if err := out.Encode(reply(asked)); err != nil {
			panic(err)
		}
	}
}

// reply returns the answer, or the kind of the refusal. Any other error is a bug of the library, and must not look like
// a refusal.
func reply(asked question) (said map[string]any) {
	defer func() {
		if problem := recover(); problem != nil {
			said = map[string]any{"crash": fmt.Sprintf("%v\n%s", problem, debug.Stack())}
		}
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	answer, err := answer(asked)
	runtime.ReadMemStats(&after)
	said = map[string]any{"allocated": after.TotalAlloc - before.TotalAlloc}
	var refused *wshard.Error
	switch {
	case errors.As(err, &refused):
		said["kind"], said["message"] = refused.Kind, refused.Message
	case err != nil:
		said["crash"] = err.Error()
	default:
		said["answer"] = answer
	}
	return said
}

func answer(asked question) (any, error) {
	switch asked.Ask {
	case "load":
		return load(asked.Path, asked.Channels)
	case "identity":
		return wshard.Identity(asked.Path)
	case "blocks":
		return blocks(asked.Path)
	case "window":
		return window(asked.Path, asked.Block, asked.Rows)
	case "rewrite":
		return rewrite(asked)
	case "frames":
		return frames(asked.Path, asked.Block)
	case "manifest":
		return manifest(asked.Path)
	case "recover":
		return wshard.Recover(asked.Path, wshard.RecoverOptions{Output: asked.To, RemovePartial: asked.Remove})
	case "chunks":
		return chunks(asked)
	case "claim":
		return claim(asked.Path)
	case "bench":
		return bench(asked)
	}
	return nil, fmt.Errorf("the question %q is unknown", asked.Ask)
}
