package wshard

import (
	"math"
	"math/big"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON of metadata blocks, read strictly: "JSON" of docs/specs/wshard.md. encoding/json does not fit: it accepts
// duplicate keys and lone surrogates, and forgets the order of members.
//
// A value is nil, bool, string, int64 or *big.Int for integers, float64 for fractions, []any, or map[string]any.

// float64End is the smallest integer that float64 rounds to infinity.
var float64End = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 1024), new(big.Int).Lsh(big.NewInt(1), 970))

const maxIntegerDigits = 309

// decodeObject parses one JSON object.
func decodeObject(data []byte, what string) (map[string]any, error) {
	members, _, err := decodeMembers(data, what)
	return members, err
}

// decodeMembers parses one JSON object, and returns the names of its members in order too.
func decodeMembers(data []byte, what string) (map[string]any, []string, error) {
	if len(data) > maxJSONBytes {
		return nil, nil, errorf(LimitExceeded, "%s has %d bytes; the most is %d", what, len(data), maxJSONBytes)
	}
	if !utf8.Valid(data) {
		return nil, nil, corruptf("%s is not valid JSON: it is not UTF-8", what)
	}
	parser := jsonParser{data: data}
	value, err := parser.document()
	if err != nil {
		return nil, nil, corruptf("%s is not valid JSON: %s at byte %d", what, err.(jsonProblem), parser.at)
	}
	members, ok := value.(map[string]any)
	if !ok {
		return nil, nil, corruptf("%s is not a JSON object", what)
	}
	return members, parser.names, nil
}

type jsonProblem string

func (p jsonProblem) Error() string { return string(p) }

type jsonParser struct {
	data  []byte
	at    int
	names []string // the members of the outermost object, in order
}

func (p *jsonParser) document() (any, error) {
	value, err := p.value(0)
	if err != nil {
		return nil, err
	}
	p.space()
	if p.at != len(p.data) {
		return nil, jsonProblem("something follows the value")
	}
	return value, nil
}

func (p *jsonParser) space() {
	for p.at < len(p.data) {
		switch p.data[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// next skips spaces and returns the next byte, or 0 at the end.
func (p *jsonParser) next() byte {
	p.space()
	if p.at == len(p.data) {
		return 0
	}
	return p.data[p.at]
}

func (p *jsonParser) value(depth int) (any, error) {
	if depth > maxJSONDepth {
		return nil, jsonProblem("nested deeper than 32 levels")
	}
	switch next := p.next(); {
	case next == '{':
		return p.object(depth)
	case next == '[':
		return p.list(depth)
	case next == '"':
		return p.text()
	case next == '-' || (next >= '0' && next <= '9'):
		return p.number()
	}
	for word, value := range map[string]any{"true": true, "false": false, "null": nil} {
		if len(p.data)-p.at >= len(word) && string(p.data[p.at:p.at+len(word)]) == word {
			p.at += len(word)
			return value, nil
		}
	}
	return nil, jsonProblem("no value")
}

func (p *jsonParser) object(depth int) (any, error) {
	out := map[string]any{}
	p.at++
	if p.next() == '}' {
		p.at++
		return out, nil
	}
	for {
		if p.next() != '"' {
			return nil, jsonProblem("no name of a member")
		}
		name, err := p.text()
		if err != nil {
			return nil, err
		}
		if _, ok := out[name]; ok {
			return nil, jsonProblem("the key " + strconv.Quote(name) + " appears twice in one object")
		}
		if p.next() != ':' {
			return nil, jsonProblem("no colon")
		}
		p.at++
		if out[name], err = p.value(depth + 1); err != nil {
			return nil, err
		}
		if depth == 0 {
			p.names = append(p.names, name)
		}
		switch p.next() {
		case ',':
			p.at++
		case '}':
			p.at++
			return out, nil
		default:
			return nil, jsonProblem("no comma or brace")
		}
	}
}

func (p *jsonParser) list(depth int) (any, error) {
	out := []any{}
	p.at++
	if p.next() == ']' {
		p.at++
		return out, nil
	}
	for {
		item, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		out = append(out, item)
		switch p.next() {
		case ',':
			p.at++
		case ']':
			p.at++
			return out, nil
		default:
			return nil, jsonProblem("no comma or bracket")
		}
	}
}

func (p *jsonParser) text() (string, error) {
	p.at++
	start := p.at
	var out []byte
	for p.at < len(p.data) {
		switch next := p.data[p.at]; {
		case next == '"':
			out = append(out, p.data[start:p.at]...)
			p.at++
			return string(out), nil
		case next < 0x20:
			return "", jsonProblem("a control character in a string")
		case next == '\\':
			out = append(out, p.data[start:p.at]...)
			var err error
			if out, err = p.escape(out); err != nil {
				return "", err
			}
			start = p.at
		default:
			p.at++
		}
	}
	return "", jsonProblem("a string without its end")
}

func (p *jsonParser) escape(out []byte) ([]byte, error) {
	if p.at+1 >= len(p.data) {
		return nil, jsonProblem("a string without its end")
	}
	letter := p.data[p.at+1]
	p.at += 2
	if letter != 'u' {
		const letters, values = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
		for i := range letters {
			if letters[i] == letter {
				return append(out, values[i]), nil
			}
		}
		return nil, jsonProblem("an unknown escape")
	}
	high, err := p.hex()
	if err != nil {
		return nil, err
	}
	if utf16.IsSurrogate(high) {
		if p.at+1 < len(p.data) && p.data[p.at] == '\\' && p.data[p.at+1] == 'u' {
			p.at += 2
			low, err := p.hex()
			if err != nil {
				return nil, err
			}
			high = utf16.DecodeRune(high, low)
		} else {
			high = utf8.RuneError
		}
		if high == utf8.RuneError {
			return nil, jsonProblem("a lone surrogate")
		}
	}
	return utf8.AppendRune(out, high), nil
}

func (p *jsonParser) hex() (rune, error) {
	if p.at+4 > len(p.data) {
		return 0, jsonProblem("an escape without four digits")
	}
	var value rune
	for _, digit := range p.data[p.at : p.at+4] {
		switch {
		case digit >= '0' && digit <= '9':
			value = value<<4 | rune(digit-'0')
		case digit|0x20 >= 'a' && digit|0x20 <= 'f':
			value = value<<4 | rune(digit|0x20-'a'+10)
		default:
			return 0, jsonProblem("an escape without four digits")
		}
	}
	p.at += 4
	return value, nil
}

func (p *jsonParser) digits() int {
	start := p.at
	for p.at < len(p.data) && p.data[p.at] >= '0' && p.data[p.at] <= '9' {
		p.at++
	}
	return p.at - start
}

func (p *jsonParser) number() (any, error) {
	start := p.at
	if p.data[p.at] == '-' {
		p.at++
	}
	first := p.at
	count := p.digits()
	if count == 0 || (count > 1 && p.data[first] == '0') {
		return nil, jsonProblem("a malformed number")
	}
	isFraction := false
	if p.at < len(p.data) && p.data[p.at] == '.' {
		isFraction = true
		p.at++
		if p.digits() == 0 {
			return nil, jsonProblem("a malformed number")
		}
	}
	if p.at < len(p.data) && p.data[p.at]|0x20 == 'e' {
		isFraction = true
		p.at++
		if p.at < len(p.data) && (p.data[p.at] == '+' || p.data[p.at] == '-') {
			p.at++
		}
		if p.digits() == 0 {
			return nil, jsonProblem("a malformed number")
		}
	}
	text := string(p.data[start:p.at])
	if isFraction {
		value, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsInf(value, 0) {
			return nil, jsonProblem("a number that does not fit in float64")
		}
		return value, nil
	}
	if value, err := strconv.ParseInt(text, 10, 64); err == nil {
		return value, nil
	}
	value, ok := new(big.Int), false
	if count <= maxIntegerDigits {
		value, ok = value.SetString(text, 10)
	}
	if !ok || value.CmpAbs(float64End) >= 0 {
		return nil, jsonProblem("a number that does not fit in float64")
	}
	return value, nil
}

// countOf returns an integer from 0 to most.
func countOf(value any, most int64) (int, bool) {
	number, ok := value.(int64)
	return int(number), ok && number >= 0 && number <= most
}
