// Command wshard inspects, verifies and recovers WShard files.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"wshard"
)

const usage = `usage: wshard COMMAND [--json] ...

  info FILE                        the episode and its blocks
  cat FILE BLOCK [--rows A:B]      the rows of a block, one on each line
                 [--raw]           or its decoded bytes
  verify FILE...                   every checksum, type, seal and listed chunk
  recover JOURNAL [--output FILE]  a file with every flushed step of a journal
                  [--remove-partial]

FILE is a path, the manifest of a chunked episode, or an http address.
`

type command struct {
	out  io.Writer
	errs io.Writer
	json bool
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit status: 0, 1 for a refused or damaged file, 2 for wrong arguments.
func run(arguments []string, out, errs io.Writer) int {
	if len(arguments) == 0 || arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help" {
		fmt.Fprint(out, usage)
		return 0
	}
	c := &command{out: out, errs: errs}
	flags := flag.NewFlagSet(arguments[0], flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&c.json, "json", false, "")
	var run func(names []string) error
	least, most := 1, 1
	switch arguments[0] {
	case "info":
		run = func(names []string) error { return c.info(names[0]) }
	case "cat":
		rows, isRaw := flags.String("rows", "", ""), flags.Bool("raw", false, "")
		least, most = 2, 2
		run = func(names []string) error { return c.cat(names[0], names[1], *rows, *isRaw) }
	case "verify":
		most = 1 << 30
		run = c.verify
	case "recover":
		output, isRemoved := flags.String("output", "", ""), flags.Bool("remove-partial", false, "")
		run = func(names []string) error { return c.recover(names[0], *output, *isRemoved) }
	default:
		fmt.Fprintf(errs, "wshard: there is no command %q\n%s", arguments[0], usage)
		return 2
	}
	names, err := parse(flags, arguments[1:])
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(out, usage)
		return 0
	}
	if err == nil && (len(names) < least || len(names) > most) {
		err = fmt.Errorf("%s takes %d names, and %d were given", arguments[0], least, len(names))
	}
	if err != nil {
		fmt.Fprintf(errs, "wshard: %v\n%s", err, usage)
		return 2
	}
	if err := run(names); err != nil {
		c.fail(err)
		return 1
	}
	return 0
}

// parse accepts flags before and after names.
func parse(flags *flag.FlagSet, arguments []string) ([]string, error) {
	var names []string
	for {
		if err := flags.Parse(arguments); err != nil {
			return nil, err
		}
		if flags.NArg() == 0 {
			return names, nil
		}
		names = append(names, flags.Arg(0))
		arguments = flags.Args()[1:]
	}
}

var errReported = errors.New("the problem was printed already")

func (c *command) fail(err error) {
	if err == errReported {
		return
	}
	var refused *wshard.Error
	if c.json && errors.As(err, &refused) {
		c.print(map[string]any{"error": refused.Kind, "message": refused.Message, "hint": refused.Hint})
	}
	fmt.Fprintln(c.errs, strings.ReplaceAll(err.Error(), "\n", " "))
}

func (c *command) print(value any) error {
	encoder := json.NewEncoder(c.out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
